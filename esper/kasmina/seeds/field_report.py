"""What a seed was worth, read from its history once it has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from esper.kasmina.seeds.records import newest_birth
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import CULLED, FOSSILIZED, short

_COSTS = {"seed_bytes": "bytes", "latency_ms": "latency_ms"}
"""Gates' evidence of what a seed costs: memory of its parameters, time of a call (newest measurement)."""
_Outcome = pb.FieldReportOutcome


def field_report(seed: pb.SeedReport) -> pb.FieldReport | None:
    """Of the newest life in its history; None where that has not ended. The same history gives the same report."""
    life = _newest_life(seed.history)
    end = next((place for place, record in enumerate(life) if record.stage in (FOSSILIZED, CULLED)), None)
    if end is None:
        return None
    first, last = life[0], life[end]
    return pb.FieldReport(
        version=1,
        report_id=f"{seed.seed_id}/{first.step}-{last.step}",
        seed_id=seed.seed_id,
        blueprint_id=seed.blueprint_id,
        outcome=_outcome(seed, last.stage),
        metrics=_times(life[: end + 1], seed.gates_dropped) | _costs(life[: end + 1]) | _gain(seed),
        observed_from_step=first.step,
        observed_to_step=last.step,
        site=seed.site,
        stage=last.stage,
        detail=last.detail,
    )


def _newest_life(history: Sequence[pb.StageRecord]) -> Sequence[pb.StageRecord]:
    """From the germination on; a seed's history goes on when its slot is used again under its name."""
    born = newest_birth(history)
    return [] if born is None else history[born:]


def _outcome(seed: pb.SeedReport, stage: pb.SeedLifecycleStage) -> pb.FieldReportOutcome:
    """ABORTED: it ended before its worth was measured. REGRESSION: the whole interval of its gain is below zero."""
    if stage == FOSSILIZED:
        return _Outcome.FIELD_REPORT_SUCCESS
    if not seed.HasField("paired_gain"):
        return _Outcome.FIELD_REPORT_ABORTED
    return _Outcome.FIELD_REPORT_REGRESSION if seed.paired_gain.high < 0 else _Outcome.FIELD_REPORT_NEUTRAL


def _times(life: Sequence[pb.StageRecord], gates_dropped: int) -> dict[str, float]:
    """Steps spent in each stage, and in all; gates that it did not pass, also those of which the record is dropped."""
    steps = Counter[str]()
    for record, after in pairwise(life):
        steps[f"{short(record.stage).lower()}_steps"] += after.step - record.step
    failed = sum(1 for record in life if record.gate and not record.passed)
    return {**steps, "lifetime_steps": life[-1].step - life[0].step, "gates_failed": failed + gates_dropped}


def _costs(life: Sequence[pb.StageRecord]) -> dict[str, float]:
    return {told: record.evidence[name] for record in life for name, told in _COSTS.items() if name in record.evidence}


def _gain(seed: pb.SeedReport) -> dict[str, float]:
    if not seed.HasField("paired_gain"):
        return {}
    gain = seed.paired_gain
    return {"gain_mean": gain.mean, "gain_low": gain.low, "gain_high": gain.high, "gain_batches": gain.batches}
