"""What a seed was worth is told once it has ended, from its history alone."""

from __future__ import annotations

import pytest

from esper.kasmina.seeds.field_report import field_report
from esper.leyline import contracts as pb
from esper.leyline.validate.messages import validate

S, G, Outcome = pb.SeedLifecycleStage, pb.SeedLifecycleGate, pb.FieldReportOutcome


def entered(stage: pb.SeedLifecycleStage, step: int, *, passed: bool = True, **evidence: float) -> pb.StageRecord:
    gate = G.SEED_GATE_G1_GRADIENT_HEALTH if evidence or not passed else G.SEED_GATE_UNKNOWN
    return pb.StageRecord(stage=stage, step=step, gate=gate, passed=passed, evidence=evidence, detail=f"at {step}")


BORN = entered(S.SEED_STAGE_GERMINATED, 10, seed_bytes=4096.0)
TRAINED = [
    BORN,
    entered(S.SEED_STAGE_TRAINING, 20),
    entered(S.SEED_STAGE_TRAINING, 50, passed=False),
    entered(S.SEED_STAGE_BLENDING, 70),
    entered(S.SEED_STAGE_SHADOWING, 100, latency_ms=0.25),
    entered(S.SEED_STAGE_PROBATIONARY, 110),
]
CULLED = [entered(S.SEED_STAGE_CULLED, 150), entered(S.SEED_STAGE_EMBARGOED, 150)]


def seed(history: list[pb.StageRecord], gain: tuple[float, float, float] | None = None) -> pb.SeedReport:
    measured = pb.PairedGain(mean=gain[0], low=gain[1], high=gain[2], batches=4) if gain else None
    return pb.SeedReport(seed_id="s0", site="head", blueprint_id="lora", history=history, paired_gain=measured)


def test_a_fossil_is_told_with_gain_cost_and_lifetime() -> None:
    fossil = entered(S.SEED_STAGE_FOSSILIZED, 210)

    report = field_report(seed([*TRAINED, fossil], (0.2, 0.1, 0.3)))

    assert report is not None
    validate(report)
    assert (report.report_id, report.seed_id, report.blueprint_id, report.site) == ("s0/10-210", "s0", "lora", "head")
    assert (report.outcome, report.stage) == (Outcome.FIELD_REPORT_SUCCESS, S.SEED_STAGE_FOSSILIZED)
    assert (report.observed_from_step, report.observed_to_step, report.detail) == (10, 210, "at 210")
    assert dict(report.metrics) == {
        "germinated_steps": 10,
        "training_steps": 50,
        "blending_steps": 30,
        "shadowing_steps": 10,
        "probationary_steps": 100,
        "lifetime_steps": 200,
        "gates_failed": 1,
        "bytes": 4096,
        "latency_ms": 0.25,
        "gain_mean": 0.2,
        "gain_low": 0.1,
        "gain_high": 0.3,
        "gain_batches": 4,
    }


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (None, Outcome.FIELD_REPORT_ABORTED),
        ((0.0, -0.1, 0.1), Outcome.FIELD_REPORT_NEUTRAL),
        ((-0.2, -0.3, -0.1), Outcome.FIELD_REPORT_REGRESSION),
    ],
)
def test_what_was_culled_is_told_by_what_was_measured(
    gain: tuple[float, float, float] | None, expected: pb.FieldReportOutcome
) -> None:
    report = field_report(seed([*TRAINED, *CULLED], gain))

    assert report is not None
    assert (report.outcome, report.stage, report.observed_to_step) == (expected, S.SEED_STAGE_CULLED, 150)


def test_what_came_after_the_end_changes_nothing() -> None:
    rest = [entered(S.SEED_STAGE_RESETTING, 300), entered(S.SEED_STAGE_DORMANT, 300, seed_bytes=0.0)]

    assert field_report(seed([*TRAINED, *CULLED, *rest])) == field_report(seed([*TRAINED, *CULLED]))


@pytest.mark.parametrize("history", [[], TRAINED, [entered(S.SEED_STAGE_DORMANT, 5, passed=False)]])
def test_a_seed_that_lives_or_never_did_has_no_report(history: list[pb.StageRecord]) -> None:
    assert field_report(seed(history)) is None


def test_a_second_life_is_told_by_itself() -> None:
    second = [entered(S.SEED_STAGE_GERMINATED, 400), entered(S.SEED_STAGE_CULLED, 420)]

    lives = [*TRAINED, *CULLED, entered(S.SEED_STAGE_DORMANT, 300)]
    running, ended = field_report(seed([*lives, second[0]])), field_report(seed([*lives, *second]))

    assert running is None and ended is not None
    assert (ended.report_id, ended.metrics["lifetime_steps"]) == ("s0/400-420", 20)
