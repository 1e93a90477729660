"""The optimizer's breaker is fed by steps that seeds could not take; the host and the others have had theirs."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from esper.kasmina.breaker import CLOSED, OPEN
from esper.kasmina.config import KasminaConfig
from esper.leyline import contracts as pb
from esper.session import Session
from tests.seed_kit import Host, Op, Reason, equal, new_host
from tests.session_kit import on_seed, order, own_optimizer, told, train, train_bare, unsteered


def grown(host: Host) -> Session:
    """s0 trains at the body, s1 has germinated at the head; two steps were made."""
    run = unsteered(host, torch.optim.SGD(host.parameters(), lr=0.1), "body", "head")
    train(run, host, 1)
    first = on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp")
    second = on_seed(Op.SEED_OP_GERMINATE, "s1", site="head", blueprint_id="mlp")
    order(run, first, second, own_optimizer("s0", 0.05), on_seed(Op.SEED_OP_START_TRAINING))
    train(run, host, 1)
    return run


def spoil(run: Session) -> None:
    for _, parameter in run.executor.seeds["s0"].trainable():
        parameter.register_hook(lambda gradient: gradient * torch.nan)  # type: ignore[no-untyped-call]


def overflow(gradient: Tensor) -> Tensor:
    return gradient * torch.inf


def receipts(run: Session, *commands: pb.AdaptationCommand) -> list[str]:
    order(run, *commands)
    run.begin_step()
    return [facts["detail"] for name, facts in _end(run) if name == "command.failed"]


def _end(run: Session) -> list[tuple[str, dict[str, str]]]:
    run.end_step(None, 1.0)
    return told(run)


def requested(run: Session) -> list[tuple[str, int, int]]:
    return [(each.seed_id, each.operation, each.reason) for each in run.executor.requests()]


def test_three_gradients_in_a_row_that_are_not_finite_ask_for_a_cull_and_open_the_breaker() -> None:
    host = new_host()
    run = grown(host)
    spoil(run)
    train(run, host, 2)
    early = requested(run), run.executor.breakers["optimizer"].state

    train(run, host, 1)

    assert early == ([], CLOSED)
    assert requested(run) == [("s0", Op.SEED_OP_CULL, Reason.REASON_NON_FINITE)]
    assert run.executor.breakers["optimizer"].state == OPEN
    opened = [facts for name, facts in told(run) if name == "breaker.opened"]
    assert opened == [
        {"breaker": "optimizer", "reason": "the optimizer breaker is open after 3 failures, for 30 s", "open_s": "30"}
    ]


def test_while_it_is_open_no_seed_begins_to_train_and_what_is_asked_for_is_done_to_all() -> None:
    host = new_host()
    run = grown(host)
    spoil(run)
    train(run, host, 3)
    told(run)

    refused = receipts(run, on_seed(Op.SEED_OP_START_TRAINING, "s1"))
    run.status.steering.carry_out(
        pb.CommitOrder(commit=pb.BarrierCommit(requests=run.executor.requests())), run.step_number, 0
    )

    assert refused == ["the optimizer breaker is open after 3 failures, for 30 s"]
    stages = {state.seed_id: state.stage for state in run.executor.states()}
    assert stages["s0"] == pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED
    assert stages["s1"] == pb.SeedLifecycleStage.SEED_STAGE_GERMINATED
    assert not run.optimizers.has("s0")


def test_a_step_that_was_taken_between_begins_the_count_anew() -> None:
    host = new_host()
    run = grown(host)
    for finite in (False, False, True, False, False):
        handles = []
        if not finite:
            parameters = run.executor.seeds["s0"].trainable()
            handles = [each.register_hook(overflow) for _, each in parameters]  # type: ignore[no-untyped-call]
        train(run, host, 1)
        for handle in handles:
            handle.remove()

    assert requested(run) == []
    assert run.optimizers.left_out("s0") == {"steps_non_finite": 4}


def test_an_optimizer_that_raises_costs_its_seed_and_leaves_the_host_bit_identical() -> None:
    host = new_host()
    twin = copy.deepcopy(host)
    run = grown(host)
    held = run.optimizers._seeds["s0"].torch.state
    for state in held.values():
        state["exp_avg"] = torch.zeros(5, 5, 5)  # torn

    train(run, host, 2)

    train_bare(twin, torch.optim.SGD(twin.parameters(), lr=0.1), 4)
    [(seed_id, operation, reason)] = requested(run)
    assert (seed_id, operation, reason) == ("s0", Op.SEED_OP_CULL, Reason.REASON_BREAKER_OPEN)
    assert "the step of adamw raised RuntimeError" in run.executor.requests()[0].detail.lower().replace(
        "runtimeerror", "RuntimeError"
    )
    assert equal(dict(host.state_dict()), dict(twin.state_dict()))
    assert all(parameter.grad is None for _, parameter in run.executor.seeds["s0"].trainable())


def test_seeds_whose_steps_succeed_feed_nothing() -> None:
    host = new_host()
    run = grown(host)

    train(run, host, 10)

    assert requested(run) == [] and run.executor.breakers["optimizer"].state == CLOSED
    assert run.optimizers.left_out("s0") == {}


def test_seeds_that_take_85_percent_of_their_memory_are_told_once() -> None:
    # An mlp on `body` has 486 parameters, on `head` 323; with gradients and moments four times as many floats.
    body, head = 486 * 4 * 4, 323 * 4 * 4
    limit = round((body + head) / 0.87)
    host = new_host()
    settings = KasminaConfig(seeds_memory_bytes=limit)
    run = unsteered(host, torch.optim.SGD(host.parameters(), lr=0.1), "body", "head", settings=settings)
    train(run, host, 1)

    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"))
    run.begin_step()
    before = _end(run)
    order(run, on_seed(Op.SEED_OP_GERMINATE, "s1", site="head", blueprint_id="mlp"))
    run.begin_step()

    found = {"used_bytes": str(body + head), "limit_bytes": str(limit)}
    assert [facts for name, facts in before if name == "memory.filling"] == []
    assert [facts for name, facts in _end(run) if name == "memory.filling"] == [found]
