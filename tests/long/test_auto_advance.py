"""A seed germinated with auto=1 asks for each next stage by itself; the gates and the coordinator still decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from esper.kasmina.moves import AUTO, Outcome
from esper.kernels.blueprints import BLUEPRINTS
from esper.leyline import contracts as pb
from tests.seed_kit import APPLIED, FAILED, SETTINGS, Bench, Op, Reason, held_out, new_host, optimizer_of
from tests.session_kit import on_seed, order, train, unsteered

LIFE = ["GERMINATED", "TRAINING", "BLENDING", "SHADOWING", "PROBATIONARY", "FOSSILIZED"]


def steered(bench: Bench, num_steps: int) -> list[Outcome]:
    """Train, and carry out what is asked for before the next step, as a coordinator's commit would have it."""
    outcomes = []
    for _ in range(num_steps):
        bench.train(1)
        for request in bench.executor.requests():
            outcomes.append(bench.executor.request(request, bench.step + 1, bench.epoch))
            if outcomes[-1].culled:
                bench.seed_optimizers.clear()
    return outcomes


def stages(bench: Bench) -> list[str]:
    (report,) = bench.executor.reports()
    return [pb.SeedLifecycleStage.Name(r.stage).removeprefix("SEED_STAGE_") for r in report.history if r.passed]


def test_an_auto_seed_lives_its_whole_life_without_a_command() -> None:
    bench = Bench()
    bench.train(20)
    assert bench.germinate(auto=1).status == APPLIED

    steered(bench, 120)

    assert stages(bench) == LIFE


def test_a_seed_without_auto_waits_for_commands() -> None:
    bench = Bench()
    bench.train(20)
    bench.germinate()

    assert steered(bench, 30) == []
    assert bench.stage() == "GERMINATED"


def test_a_command_hands_a_seed_over_to_the_policy_and_another_holds_it() -> None:
    bench = Bench()
    bench.train(20)
    bench.germinate(auto=1)
    steered(bench, 1)
    steered(bench, 40)
    assert bench.stage() != "TRAINING"

    held = Bench()
    held.train(20)
    held.germinate()
    assert held.do(Op.SEED_OP_START_TRAINING, auto=1).status == APPLIED
    held.train(30)
    assert held.do(Op.SEED_OP_START_GRAFTING, auto=0).status == APPLIED

    assert steered(held, 40) == []
    assert held.stage() == "BLENDING"


def test_a_paused_seed_is_left_where_it_is() -> None:
    bench = Bench()
    bench.train(20)
    bench.germinate(auto=1)
    bench.executor.pause("s0", paused=True)

    assert steered(bench, 10) == []


def test_a_gate_is_tried_once_a_window_and_given_up_after_so_many() -> None:
    bench = Bench(settings=replace(SETTINGS, auto_attempts=2), holdout=held_out(0))
    bench.train(20)
    bench.germinate(auto=1)

    outcomes = steered(bench, 60)

    assert [outcome.status for outcome in outcomes] == [APPLIED, FAILED, FAILED, APPLIED]
    assert outcomes[1].detail == "probe_change is unmeasured"
    assert outcomes[3].detail == "G1_GRADIENT_HEALTH was failed 2 times; at most 2"
    assert bench.stage() == "EMBARGOED"


def test_an_embargo_ends_with_its_epoch() -> None:
    bench = Bench()
    bench.train(20)
    bench.germinate(auto=1)
    steered(bench, 3)
    bench.do(Op.SEED_OP_CULL)

    during = steered(bench, 5)
    bench.epoch = SETTINGS.embargo_epochs
    after = steered(bench, 2)

    assert during == []
    assert [outcome.status for outcome in after] == [APPLIED]
    assert bench.stage() == "DORMANT"


def test_a_rank_may_not_ask_for_a_stage_of_a_seed_that_is_left_to_commands() -> None:
    bench = Bench()
    bench.raise_seed("GERMINATED")
    request = pb.SeedRequest(seed_id="s0", operation=Op.SEED_OP_START_TRAINING)

    outcome = bench.executor.request(request, bench.step + 1, 0)

    assert (outcome.status, outcome.reason, bench.stage()) == (FAILED, Reason.REASON_NOT_SUPPORTED, "GERMINATED")


@pytest.mark.parametrize("value", [0.5, 2.0, float("nan")])
def test_auto_is_0_or_1(value: float) -> None:
    bench = Bench()
    bench.train(1)

    outcome = bench.germinate(auto=value)

    assert (outcome.reason, outcome.stage) == (Reason.REASON_OUT_OF_RANGE, pb.SeedLifecycleStage.SEED_STAGE_DORMANT)


def test_a_seed_may_end_from_dormant_or_as_a_fossil() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    refused = bench.do(Op.SEED_OP_TERMINATE)
    bench.do(Op.SEED_OP_CULL)
    bench.epoch = SETTINGS.embargo_epochs
    assert bench.do(Op.SEED_OP_RESET).status == APPLIED

    assert refused.reason == Reason.REASON_ILLEGAL_TRANSITION
    assert bench.do(Op.SEED_OP_TERMINATE).status == APPLIED
    assert bench.stage() == "TERMINATED"
    assert bench.do(Op.SEED_OP_GERMINATE).reason == Reason.REASON_ILLEGAL_TRANSITION
    assert bench.germinate(seed_id="s1").status == APPLIED


def test_in_a_run_what_the_policy_asks_for_is_ordered_and_the_seed_gets_its_optimizer() -> None:
    host, holdout = new_host(), held_out()
    optimizer = optimizer_of("sgd", list(host.parameters()))
    given = (holdout.batches, holdout.loss_fn)
    run = unsteered(host, optimizer, "body", settings=SETTINGS, holdout=given)
    train(run, host, 20)
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp", parameters={"auto": 1.0}))
    created = False
    for _ in range(120):
        train(run, host, 1)
        commit = pb.BarrierCommit(version=1, round=run.exchange.boundary.round_applied + 1)
        commit.effective_step = run.step_number
        commit.requests.extend(run.executor.requests())
        run.exchange.boundary.on_commit(pb.CommitOrder(commit=commit))
        created |= run.optimizers.has("s0")

    (state,) = run.executor.states()
    assert created
    assert state.stage == pb.SeedLifecycleStage.SEED_STAGE_FOSSILIZED
    assert not run.optimizers.has("s0")


def test_no_blueprint_has_a_parameter_that_the_policy_s_would_hide() -> None:
    assert [name for name, each in BLUEPRINTS.items() for row in each.parameters if row.name == AUTO] == []
