"""A seed's life, from germination to the host or to the embargo and back."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from esper.leyline import contracts as pb
from tests.asked_of_torch import Operations
from tests.seed_kit import APPLIED, FAILED, SETTINGS, Bench, Op, Reason, batch, equal, held_out, new_host

HAPPY = ["GERMINATED", "TRAINING", "BLENDING", "SHADOWING", "PROBATIONARY", "FOSSILIZED"]


def history(bench: Bench) -> list[tuple[str, int, bool]]:
    (report,) = bench.executor.reports()
    name = pb.SeedLifecycleStage.Name
    return [(name(record.stage).removeprefix("SEED_STAGE_"), record.gate, record.passed) for record in report.history]


@pytest.mark.parametrize(("site", "blueprint", "num_new"), [("body", "mlp", 4), ("head", "lora", 0)])
def test_a_good_seed_lives_to_be_part_of_the_host(site: str, blueprint: str, num_new: int) -> None:
    bench = Bench()
    bench.train(20)
    bench.raise_seed("PROBATIONARY", site, blueprint)
    bench.train(60)
    x, _ = batch(99)
    slot = bench.executor._slots[site]
    slot.forced = 1.0  # h + delta for every sample: a fossil is not gated by size
    before = bench.host(x).detach()
    slot.forced = None

    outcome = bench.do(Op.SEED_OP_FOSSILIZE)

    assert outcome.status == APPLIED
    assert [stage for stage, _, _ in history(bench)] == HAPPY
    assert [gate for _, gate, _ in history(bench)] == [1, 0, 2, 3, 4, 5]
    torch.testing.assert_close(bench.host(x), before, rtol=1e-4, atol=1e-5)
    assert len(outcome.fossilized) == num_new
    assert {id(p) for p in outcome.fossilized} <= {id(p) for p in bench.host.parameters()}
    gain = bench.executor.reports()[0].paired_gain
    assert gain.examples == 512
    assert 0 < gain.low < gain.mean < gain.high


def test_a_fossil_is_in_the_state_and_learns_with_the_host() -> None:
    bench = Bench()
    bench.raise_seed("PROBATIONARY")
    bench.train(40)

    fossils = bench.do(Op.SEED_OP_FOSSILIZE).fossilized
    gradients = bench.gradients(99)

    assert "body.seed_s0_1.up.weight" in bench.host.state_dict()
    assert "body.seed_s0_1.up.weight" in gradients
    assert len(fossils) == 4
    assert bench.germinate("body", seed_id="s1").status == APPLIED  # the site is free again


def test_a_culled_seed_leaves_the_bare_host_and_may_return_after_the_embargo() -> None:
    bench = Bench()
    bench.raise_seed("BLENDING")
    alone = new_host()
    alone.load_state_dict(bench.host.state_dict())

    culled = bench.do(Op.SEED_OP_CULL)
    early = bench.do(Op.SEED_OP_RESET)
    bench.epoch = 2
    late = bench.do(Op.SEED_OP_RESET)

    assert (culled.status, culled.culled, culled.stage) == (APPLIED, True, pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED)
    assert (early.status, early.reason) == (FAILED, Reason.REASON_EMBARGOED)
    assert (late.status, late.gate) == (APPLIED, pb.SeedLifecycleGate.SEED_GATE_G5_RESET)
    assert [stage for stage, _, _ in history(bench)][-4:] == ["CULLED", "EMBARGOED", "RESETTING", "DORMANT"]
    assert not bench.executor.seeds
    assert torch.equal(bench.host(batch(99)[0]), alone(batch(99)[0]))
    assert equal(bench.gradients(99), Bench(alone, sites=()).gradients(99))
    assert bench.germinate().status == APPLIED
    assert bench.executor.seeds["s0"].generation == 2


def test_a_diverging_seed_asks_to_be_culled() -> None:
    bench = Bench(seed_lr=1e6)
    bench.train(1)
    bench.germinate()
    bench.do(Op.SEED_OP_START_TRAINING)
    alone = Bench(sites=())

    bench.train(24)
    alone.train(25)
    (request,) = bench.executor.requests()
    outcome = bench.executor.request(request, bench.step + 1, 0)

    assert request.operation == Op.SEED_OP_CULL
    assert request.reason in (Reason.REASON_NON_FINITE, Reason.REASON_BREAKER_OPEN)
    assert outcome.culled
    assert bench.stage() == "EMBARGOED"
    assert equal(bench.host.state_dict(), alone.host.state_dict())


def test_a_seed_that_is_not_finite_is_culled_at_g1() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    with torch.no_grad():
        bench.executor.seeds["s0"].trainable()[-1][1].fill_(math.nan)

    outcome = bench.do(Op.SEED_OP_START_GRAFTING)

    assert (outcome.reason, outcome.culled, bench.stage()) == (Reason.REASON_NON_FINITE, True, "EMBARGOED")


def test_a_gate_that_fails_holds_the_stage_and_writes_it_down() -> None:
    bench = Bench()
    bench.train(1)
    bench.germinate()
    bench.do(Op.SEED_OP_START_TRAINING)
    bench.train(3)

    outcome = bench.do(Op.SEED_OP_START_GRAFTING)

    assert (outcome.status, outcome.reason, outcome.culled) == (FAILED, Reason.REASON_GATE_FAILED, False)
    assert "steps is 3, expected at least 10" in outcome.detail
    assert "fit_last is unmeasured" in outcome.detail
    assert history(bench)[-1] == ("TRAINING", 2, False)


def test_without_held_out_examples_g1_is_unmeasured() -> None:
    bench = Bench(holdout=None)
    bench.train(1)
    bench.germinate()
    bench.do(Op.SEED_OP_START_TRAINING)
    bench.train(30)

    outcome = bench.do(Op.SEED_OP_START_GRAFTING)

    assert outcome.detail == "probe_change is unmeasured"


def test_a_useless_seed_is_culled_at_g4() -> None:
    bench = Bench(settings=replace(SETTINGS, min_gain=100.0))
    bench.raise_seed("PROBATIONARY")

    outcome = bench.do(Op.SEED_OP_FOSSILIZE)

    assert (outcome.status, outcome.reason, outcome.culled) == (FAILED, Reason.REASON_GATE_FAILED, True)
    assert history(bench)[-3:] == [("PROBATIONARY", 5, False), ("CULLED", 0, True), ("EMBARGOED", 0, True)]


def test_a_seed_whose_code_has_raised_does_not_become_part_of_the_host() -> None:
    bench = Bench(settings=replace(SETTINGS, min_gain=-1.0))  # left out since it raised, it gains nothing
    bench.train(20)
    bench.raise_seed("PROBATIONARY", "body", "mlp")
    bench.train(60)
    bench.executor.seeds["s0"].fault = "IndexError: pop from empty list"

    outcome = bench.do(Op.SEED_OP_FOSSILIZE)

    assert (outcome.status, outcome.culled, bench.stage()) == (FAILED, True, "EMBARGOED")
    assert outcome.detail == "fault is 1, expected 0"


def test_too_few_examples_fail_g4() -> None:
    bench = Bench(holdout=held_out(1))
    bench.raise_seed("PROBATIONARY")

    assert "examples is 128, expected at least 256" in bench.do(Op.SEED_OP_FOSSILIZE).detail


def test_alpha_short_of_its_target_and_no_batch_in_shadow_hold_g2_and_g3() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    bench.do(Op.SEED_OP_START_GRAFTING, steps=100)
    bench.train(12)
    assert "alpha_gap" in bench.do(Op.SEED_OP_STABILIZE).detail
    bench.do(Op.SEED_OP_SET_ALPHA_TARGET, alpha=1.0, steps=0)

    assert bench.do(Op.SEED_OP_STABILIZE).status == APPLIED
    assert bench.do(Op.SEED_OP_EVALUATE).detail == "batches_shadowed is 0, expected at least 1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"site": "tail"}, Reason.REASON_UNKNOWN_SITE),
        ({"blueprint": "conv"}, Reason.REASON_UNKNOWN_BLUEPRINT),
        ({"width": 3.0}, Reason.REASON_UNKNOWN_PARAMETER),
        ({"hidden": 0.0}, Reason.REASON_OUT_OF_RANGE),
    ],
)
def test_a_germination_that_names_nothing_known_is_refused(change: dict[str, str | float], reason: int) -> None:
    bench = Bench()
    bench.train(1)

    outcome = bench.germinate(**change)  # type: ignore[arg-type]

    assert (outcome.status, outcome.reason) == (FAILED, reason)
    assert not bench.executor.reports()


def test_a_blend_outside_its_range_is_refused_and_the_seed_trains_on() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    given: list[dict[str, float]] = [{"alpha": 1.5}, {"alpha": -0.1}, {"steps": -1}, {"steps": 2e9}, {"step": 4}]

    outcomes = [bench.do(Op.SEED_OP_START_GRAFTING, "s0", **parameters) for parameters in given]

    assert [(outcome.status, outcome.detail) for outcome in outcomes] == [
        (FAILED, "alpha is 1.5; expected a number in [0, 1]"),
        (FAILED, "alpha is -0.1; expected a number in [0, 1]"),
        (FAILED, "steps is -1; expected a number in [0, 1e9]"),
        (FAILED, "steps is 2e+09; expected a number in [0, 1e9]"),
        (FAILED, "'step' is unknown; expected alpha, steps"),
    ]
    assert bench.stage() == "TRAINING"


def test_a_site_holds_one_live_seed_and_a_stage_allows_its_own_operations() -> None:
    bench = Bench()
    bench.train(1)
    bench.germinate()

    assert bench.germinate(seed_id="s1").reason == Reason.REASON_SITE_TAKEN
    assert bench.do(Op.SEED_OP_FOSSILIZE).reason == Reason.REASON_ILLEGAL_TRANSITION
    assert bench.do(Op.SEED_OP_CULL, "s9").reason == Reason.REASON_UNKNOWN_SEED
    assert bench.do(Op.SEED_OP_FINE_TUNE).reason == Reason.REASON_ILLEGAL_TRANSITION


def test_a_site_that_carried_nothing_yet_fails_g0() -> None:
    outcome = Bench().germinate()

    assert outcome.reason == Reason.REASON_GATE_FAILED
    assert "seen is 0" in outcome.detail


def test_seeds_begin_alike_on_all_ranks_and_leave_the_generator_alone() -> None:
    first, second = Bench(), Bench()
    for bench in (first, second):
        bench.train(1)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first.germinate()
    unmoved = torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    second.germinate()

    modules = [bench.executor.seeds["s0"].module for bench in (first, second)]

    assert unmoved
    assert modules[0] is not None
    assert modules[1] is not None
    assert equal(modules[0].state_dict(), modules[1].state_dict())


def test_evidence_is_the_mean_over_ranks() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    calls: list[torch.Tensor] = []

    def lame(tensor: torch.Tensor) -> torch.Tensor:
        """The mean with a rank that measured nothing."""
        calls.append(tensor)
        return tensor * 0.5

    bench.executor._moves.collector.reduce = lame
    outcome = bench.do(Op.SEED_OP_START_GRAFTING)

    assert {tensor.dtype for tensor in calls} == {torch.float64}
    assert outcome.detail.startswith("steps is unmeasured; fit_first is unmeasured")


def test_a_rank_alone_has_the_evidence_of_one_among_equals_and_asks_torch_for_none_of_it() -> None:
    collector = Bench().executor._collector
    values = [0.1, None, 7, 1e300, 5e-324, -0.0, math.inf]

    with Operations() as asked:
        alone = collector.mean(values)
    collector.reduce = lambda tensor: (tensor + tensor) / 2

    assert alone == collector.mean(values) == values
    assert asked.calls == []
    assert collector.mean([torch.tensor(0.5), None]) == [0.5, None]


def test_a_breaker_opened_by_command_quarantines_the_seed() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    command = pb.CircuitBreakerCommand(
        seed_id="s0", desired_state=pb.CircuitBreakerState.BREAKER_OPEN, rationale="looks odd"
    )

    outcome = bench.executor.set_breaker(command, bench.step + 1, 0)

    assert (outcome.culled, bench.stage()) == (True, "EMBARGOED")


def test_a_lora_is_not_folded_into_a_weight_that_another_module_shares() -> None:
    host = new_host()
    host.add_module("twin", torch.nn.Linear(6, 3))
    host.get_submodule("twin").weight = host.head.weight
    bench = Bench(host)
    bench.train(20)
    bench.raise_seed("PROBATIONARY", "head", "lora")
    bench.train(60)

    outcome = bench.do(Op.SEED_OP_FOSSILIZE)

    assert (outcome.status, len(outcome.fossilized)) == (APPLIED, 2)


def test_a_reset_that_leaves_something_behind_holds_and_may_be_tried_again() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    module = bench.executor.seeds["s0"].module
    bench.do(Op.SEED_OP_CULL)
    bench.epoch = 2
    bench.executor.seeds["s0"].module = module

    first = bench.do(Op.SEED_OP_RESET)
    bench.executor.seeds["s0"].module = module = None
    second = bench.do(Op.SEED_OP_RESET)

    assert module is None
    assert first.detail.startswith("seeds is 1, expected 0; bytes_held is ")
    assert second.status == APPLIED


def test_a_fossil_of_a_later_run_joins_those_of_an_earlier_one() -> None:
    first = Bench()
    first.raise_seed("PROBATIONARY")
    assert first.do(Op.SEED_OP_FOSSILIZE).status == APPLIED
    first.executor.detach()
    old = {name for name, _ in first.host.named_parameters()}
    second = Bench(host=first.host)
    second.raise_seed("PROBATIONARY")
    x, _ = batch(0)
    before, num = first.host(x), len(old)

    assert second.do(Op.SEED_OP_FOSSILIZE).status == APPLIED
    second.executor.detach()

    assert torch.allclose(first.host(x), before, atol=1e-5)
    names = {name for name, _ in first.host.named_parameters()}
    assert old < names and len(names) == num + 4  # two layers of the second seed
