"""Open breakers and a full budget refuse an operation before anything is tried, on all ranks alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from esper.kasmina.executor import Executor
from esper.kasmina.gates.evidence import Sources
from esper.kasmina.moves import Outcome
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.leyline import contracts as pb
from esper.leyline.validate.messages import validate
from esper.leyline.validate.rounds import worker_report
from tests.clocks import Clock
from tests.rounds import vote
from tests.seed_kit import APPLIED, FAILED, SETTINGS, Bench, Op, Reason, batch, new_host


def unbuildable(*_: object) -> nn.Module:
    raise ValueError("no such luck")


ODD: Mapping[str, Blueprint] = {**BLUEPRINTS, "odd": Blueprint("odd", (), unbuildable, "")}


def executor(clock: Clock, mean: float | None = None) -> Executor:
    """With a site that has carried a batch; `mean` is added by the other ranks to every mean of a breaker's state."""

    def reduce(packed: Tensor) -> Tensor:
        return packed if mean is None or len(packed) != 4 else packed + torch.tensor([mean, mean, 0.0, 0.0])

    host = new_host()
    sources = Sources(reduce, clock=clock)
    made = Executor(host, ["body", "head"], run_id="r", settings=SETTINGS, blueprints=ODD, sources=sources)
    host(batch(1)[0])
    return made


def germinate(rank: Executor, blueprint: str, seed_id: str = "s0", site: str = "body") -> Outcome:
    grow = Op.SEED_OP_GERMINATE
    return rank.apply(pb.SeedCommand(seed_id=seed_id, operation=grow, site=site, blueprint_id=blueprint), 1, 0)


def test_ten_blueprints_that_fail_open_the_kernel_breaker_until_one_succeeds_half_open() -> None:
    clock = Clock()
    rank = executor(clock)

    failures = [germinate(rank, "odd").reason for _ in range(10)]
    refused = germinate(rank, "mlp")
    clock.now_s = 30.0
    probed = [germinate(rank, "odd").reason, germinate(rank, "mlp").reason]  # a failure opens it at once
    clock.now_s = 60.0
    accepted = germinate(rank, "mlp")

    assert failures == [Reason.REASON_GATE_FAILED] * 10
    assert (refused.status, refused.reason) == (FAILED, Reason.REASON_BREAKER_OPEN)
    assert refused.detail == "the kernel breaker is open after 10 failures, for 30 s"
    assert probed == [Reason.REASON_GATE_FAILED, Reason.REASON_BREAKER_OPEN]
    assert accepted.status == APPLIED
    assert rank.breakers["kernel"].state == pb.CircuitBreakerState.BREAKER_CLOSED


def test_a_breaker_that_is_open_on_another_rank_refuses_here_too() -> None:
    rank = executor(Clock(), mean=0.5)

    outcome = germinate(rank, "mlp")

    assert (outcome.reason, rank.seeds) == (Reason.REASON_BREAKER_OPEN, {})


def test_seeds_that_together_exceed_the_budget_are_refused_with_both_numbers_and_leave_room_when_culled() -> None:
    # An mlp on `body` has 8 * 32 + 32 + 32 * 6 + 6 parameters, on `head` 6 * 32 + 32 + 32 * 3 + 3; with gradients and
    # moments four times as many floats.
    body, head = 486 * 4 * 4, 323 * 4 * 4
    bench = Bench(settings=replace(SETTINGS, seeds_memory_bytes=body + head - 1))
    bench.train(1)
    assert bench.germinate("body").status == APPLIED

    refused = bench.germinate("head", seed_id="s1")
    bench.do(Op.SEED_OP_CULL)
    after = bench.germinate("head", seed_id="s1")

    assert (refused.status, refused.reason) == (FAILED, Reason.REASON_OUT_OF_RANGE)
    assert refused.detail == f"s1 needs {head} bytes; {head - 1} of {body + head - 1} are free"
    assert list(bench.executor.seeds) == ["s0", "s1"] and after.status == APPLIED


def test_five_seeds_over_budget_open_the_memory_breaker() -> None:
    bench = Bench(settings=replace(SETTINGS, seeds_memory_bytes=1000))
    bench.train(1)

    reasons = [bench.germinate().reason for _ in range(6)]

    assert reasons == [Reason.REASON_OUT_OF_RANGE] * 5 + [Reason.REASON_BREAKER_OPEN]
    assert bench.stage() == "DORMANT" and not bench.executor.seeds


def test_an_open_recompile_breaker_refuses_a_graft() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    for _ in range(3):
        bench.executor.breakers["recompile"].fail()

    outcome = bench.do(Op.SEED_OP_START_GRAFTING)

    assert (outcome.reason, bench.stage()) == (Reason.REASON_BREAKER_OPEN, "TRAINING")


def test_what_a_seeds_code_raises_at_length_costs_its_rank_no_vote_and_no_report() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    module = bench.executor.seeds["s0"].module
    assert module is not None

    def fails(*_: object) -> None:
        raise ValueError("no such luck, " * 1000)

    module.register_forward_pre_hook(fails)
    bench.host(batch(1)[0])
    [asked] = bench.executor.requests()
    culled = bench.executor.request(asked, bench.step, bench.epoch)

    validate(vote(requests=[asked]))
    validate(pb.CommandReceipt(version=1, command_id="c", worker="w", status=APPLIED, detail=culled.detail))
    worker_report(pb.WorkerReport(worker="w", seeds=bench.executor.reports()))
    assert asked.detail.startswith("ValueError: no such luck, no such luck, ")
