"""What a run remembers of seeds does not grow with its length: 64 records of each, and 64 seeds that are over."""

from __future__ import annotations

from pathlib import Path

import pytest

from esper.kasmina.seeds.field_report import field_report
from esper.leyline import contracts as pb
from tests.checkpoint_kit import Training
from tests.seed_kit import APPLIED, FAILED, Bench, Op
from tests.session_kit import on_seed

S = pb.SeedLifecycleStage
MOST = 64


def live(bench: Bench, seed_id: str = "s0", site: str = "head") -> None:
    """One life, from the germination to DORMANT: five records."""
    assert bench.germinate(site, "lora", seed_id).status == APPLIED
    bench.do(Op.SEED_OP_CANCEL, seed_id)
    bench.epoch += bench.settings.embargo_epochs
    assert bench.do(Op.SEED_OP_RESET, seed_id).status == APPLIED


def report(bench: Bench, seed_id: str = "s0") -> pb.SeedReport:
    [found] = [each for each in bench.executor.reports() if each.seed_id == seed_id]
    return found


def test_of_an_id_that_is_germinated_again_and_again_the_newest_lives_are_told() -> None:
    bench = Bench()
    bench.train(1)
    for _ in range(15):
        bench.step += 1
        live(bench)

    told = report(bench)

    assert (len(told.history), told.records_dropped, told.gates_dropped) == (MOST, 5 * 15 - MOST, 0)
    assert [record.step for record in told.history if record.stage == S.SEED_STAGE_GERMINATED] == [*range(5, 18)][-12:]
    assert told.history[-1].stage == S.SEED_STAGE_DORMANT


def test_a_life_of_many_failed_gates_keeps_its_birth_and_its_figures() -> None:
    bench = Bench()
    bench.train(1)
    bench.germinate("head", "lora")
    bench.do(Op.SEED_OP_START_TRAINING)
    failed = {bench.do(Op.SEED_OP_START_GRAFTING).status for _ in range(80)}
    bench.step += 10
    module = bench.executor.seeds["s0"].module
    bench.do(Op.SEED_OP_CULL)
    ended = field_report(report(bench))
    bench.epoch += bench.settings.embargo_epochs
    bench.executor.seeds["s0"].module = module  # what G5 finds left behind
    failed |= {bench.do(Op.SEED_OP_RESET).status for _ in range(5)}

    told = report(bench)

    assert failed == {FAILED}
    assert (len(told.history), told.records_dropped) == (MOST, 2 + 80 + 2 + 5 - MOST)
    assert [told.history[0].stage, told.history[1].stage] == [S.SEED_STAGE_GERMINATED, S.SEED_STAGE_TRAINING]
    assert ended is not None and (ended.metrics["gates_failed"], ended.metrics["training_steps"]) == (80, 10)
    assert field_report(told) == ended


def test_of_seeds_that_are_over_the_newest_stay_and_a_fossil_always() -> None:
    bench = Bench()
    bench.raise_seed("PROBATIONARY")
    bench.train(40)
    assert bench.do(Op.SEED_OP_FOSSILIZE).status == APPLIED
    bench.do(Op.SEED_OP_TERMINATE)
    for number in range(MOST + 3):
        bench.step += 1
        live(bench, f"n{number}")

    bench.germinate("head", "lora", "last")

    assert [each.seed_id for each in bench.executor.reports()] == [
        "s0",
        *(f"n{number}" for number in range(3, MOST + 3)),
        "last",
    ]
    assert bench.executor.num_forgotten == 3
    assert len(bench.executor.states()) == MOST + 2


def test_one_that_is_forgotten_begins_anew_and_comes_back_by_no_rollback(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.executor.follow_optimizers(run.optimizers.has)
    run.train(1)
    run.germinate()
    run.train(2)
    step = run.step
    run.checkpoints.save(step)
    for seed_id in ["s0", *(f"n{number}" for number in range(MOST))]:
        if seed_id != "s0":
            run.germinate(seed_id)
        run.do(Op.SEED_OP_CULL, seed_id)
        reset = on_seed(Op.SEED_OP_RESET, seed_id).seed_command
        assert run.executor.apply(reset, run.step, 5).status == APPLIED
        run.step += 1
    run.germinate("last", "head")

    receipt = run.roll_back(step)

    assert receipt.status == APPLIED
    assert run.executor.num_forgotten == 1
    assert "s0" not in run.stages()


def test_a_germination_for_which_there_is_no_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esper.kasmina.seeds.forgetting.MOST_LIVING", 1)
    bench = Bench()
    bench.train(1)
    bench.germinate("head", "lora")

    refused = bench.germinate("body", "mlp", "s1")

    assert refused.status == FAILED
    assert refused.detail == "1 seeds hold a site or are part of the model; expected fewer than 1"
