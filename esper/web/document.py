"""What a page shows of a run, as plain JSON: no message, no NaN, nothing that a browser would have to decode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from esper.leyline import contracts as pb
from esper.leyline.lifecycle import (
    BLENDING,
    GERMINATED,
    SHADOWING,
    TRAINING,
    gate_name,
    outcome_name,
    reason_name,
    short,
    status_name,
)
from esper.view.curves import ALL_RANKS, MOST_LINES, VALIDATION, Curves, Mark
from esper.view.line import MOST_POINTS, Point
from esper.view.orders import Order
from esper.view.picture import Picture
from esper.view.seeds import Gain, Moment, Seed
from esper.view.timeline import Row, Timeline
from esper.view.workers import Worker

Json: TypeAlias = dict[str, Any]
NUM_SIGNALS = 8
ROLLED_BACK = "ROLLED BACK"
BEFORE_G4 = (GERMINATED, TRAINING, BLENDING, SHADOWING)


def kept(timeline: Timeline) -> Json:
    """How much a page that is open for days keeps: as much as we do, of which a new page is told."""
    rows = {"decided": timeline.most, "empty": timeline.most_refused, "refused": timeline.most_refused}
    return {"rows": rows, "lines": MOST_LINES + len((ALL_RANKS, VALIDATION)), "points": MOST_POINTS}


def head(picture: Picture) -> Json:
    """The run as a whole."""
    workers = picture.workers.ordered
    return {
        "run": picture.run_id,
        "at_ms": picture.now_ms,
        "paused": picture.workers.is_paused,
        "ended": picture.workers.are_done,
        "known": len(workers),
        "troubled": picture.workers.troubled(picture.now_ms),
        "world_size": picture.workers.world_size,
        "step": max((worker.beat.step for worker in workers), default=0),
        "epoch": max((worker.beat.epoch for worker in workers), default=0),
        "published": picture.orders.num_published,
        "applied": picture.orders.num_applied,
        "untold": picture.orders.num_untold,
        "rejected": dict(sorted(picture.rejected.items())),
    }


def flow(picture: Picture) -> Json:
    """Telemetry by tier, and how far each reduces; rounds and how long they took. Null: totals that can't be read."""
    totals, reductions, is_known = picture.flow.totals, picture.flow.reductions, picture.flow.is_known
    return {
        "tiers": [
            {"name": name, "count": count if is_known else None, "per_s": number(picture.flow.per_s(name))}
            for name, count in picture.flow.counts.items()
        ],
        "reductions": [number(each) for each in reductions],
        "shed": totals.shed if is_known else None,
        "gaps": totals.gaps if is_known else None,
        "rounds": {
            "committed": picture.rounds.committed,
            "aborted": picture.rounds.aborted,
            "since_ms": picture.decided_since_ms,
            "p50_ms": number(picture.rounds.latency_ms(50)),
            "p99_ms": number(picture.rounds.latency_ms(99)),
        },
    }


def alarms(picture: Picture) -> Json:
    """Breakers that have opened, and the newest signals."""
    return {
        "breakers": [
            {
                "name": breaker.name,
                "worker": breaker.worker,
                "state": breaker.state(picture.now_ms),
                "reason": breaker.reason,
                "opened_ms": breaker.opened_ms,
                "times": breaker.times,
            }
            for _, breaker in sorted(picture.alarms.breakers.items())
        ],
        "signals": [
            {"reason": signal.reason, "origin": signal.origin, "step": signal.global_step}
            for signal in [*picture.alarms.signals][-NUM_SIGNALS:]
        ],
    }


def worker_row(worker: Worker, now_ms: int) -> Json:
    """Where one worker stands."""
    beat = worker.beat
    return {
        "name": worker.name,
        "rank": beat.rank,
        "region": beat.region,
        "state": worker.state(now_ms),
        "step": beat.step,
        "epoch": beat.epoch,
        "loss": number(beat.loss),
        "accuracy": number(beat.accuracy),
        "steps_per_s": number(worker.steps_per_s(now_ms)),
        "samples_per_s": number(worker.samples_per_s(now_ms)),
        "lag": worker.lag,
        "shed": beat.shed,
    }


def seed_row(seed: Seed) -> Json:
    """Where one seed stands. `num_moments` says whether its page has anything new."""
    state = seed.state
    return {
        "id": state.seed_id,
        "site": state.site,
        "blueprint": state.blueprint_id,
        "stage": "GONE" if seed.is_gone else short(seed.stage) if seed.stage else "",
        "alpha": None if seed.is_gone or not state.stage else number(state.alpha),
        "since_step": state.stage_since_step,
        "generation": state.generation,
        "paused": state.paused,
        "gain": gain_of(seed.gain),
        "gate": moment_row(seed.last_gate) if seed.last_gate else None,
        "num_moments": len(seed.moments),
    }


def seed_page(seed: Seed) -> Json:
    """All that is known of one seed."""
    report = seed.report
    outcome = outcome_name(report.outcome) if report else ""
    return {
        **seed_row(seed),
        "unmeasured": unmeasured(seed),
        "moments": [moment_row(moment) for moment in seed.moments],
        "metrics": numbers(seed.state.metrics),
        "learning_rate": number(seed.state.learning_rate),
        "risk": number(seed.state.risk_score),
        "outcome": outcome,
        "report": {"detail": report.detail, "metrics": numbers(report.metrics)} if report else None,
    }


def unmeasured(seed: Seed) -> str:
    """Why there is no gain to show. Answers of before what was read may have told one; none, where the birth was."""
    if seed.gain is not None:
        return ""
    if seed.began or seed.state.stage in BEFORE_G4:
        return "Not measured: G4 does so before a seed becomes part of the model."
    return "Not known: what is read here begins behind this seed, and G4 may have measured before. A report reads all."


def moment_row(moment: Moment) -> Json:
    """A stage that a seed came to, or a gate that it did not pass, with what the gate was shown."""
    return {
        "step": moment.step,
        "stage": short(moment.stage) if moment.stage else "",
        "gate": gate_name(moment.gate) if moment.gate else "",
        "passed": moment.passed,
        "evidence": numbers(moment.evidence),
        "detail": moment.detail,
        "at_ms": moment.at_ms,
    }


def gain_of(gain: Gain | None) -> Json | None:
    """Loss with the seed off minus on, with its interval."""
    return None if gain is None else {"mean": number(gain.mean), "low": number(gain.low), "high": number(gain.high)}


def timeline_row(row: Row, *, is_told: bool = True) -> Json:
    """One decision, who sealed it, and what became of it, where that `is_told`."""
    return {
        "id": f"{row.stream}/{row.entry_id}",
        "at_ms": row.key[0],
        "kind": row.kind,
        "what": row.what,
        "step": row.step if row.step is not None else _step_of(row.order),
        "seed": row.seed_id,
        "empty": row.is_empty,
        "by": row.issued_by,
        "seal": {
            "standing": row.seal.standing,
            "role": row.seal.role,
            "producer": row.seal.producer,
            "key": row.seal.key_id,
            "detail": row.seal.detail,
        },
        "status": (row.order.status if is_told else "unknown") if row.order else "",
        "answers": [answer_row(receipt) for receipt in row.order.answers] if row.order else [],
    }


def answer_row(receipt: pb.CommandReceipt) -> Json:
    """What one process answered."""
    return {
        "worker": receipt.worker,
        "status": status_name(receipt.status),
        "step": receipt.step,
        "stage": short(receipt.stage) if receipt.stage else "",
        "reason": reason_name(receipt.reason) if receipt.reason else "",
        "detail": receipt.detail,
    }


def lines(curves: Curves) -> Json:
    """Every line whole, by plot and name: xs and ys."""
    return {
        plot: {name: columns(line.points) for name, line in named.items() if line.points}
        for plot, named in curves.lines.items()
    }


def fresh(curves: Curves) -> Json:
    """What was added to any line since this was last asked."""
    found: Json = {}
    for plot, named in curves.lines.items():
        added = {name: columns(points) for name, line in named.items() if (points := line.fresh())}
        if added:
            found[plot] = added
    return found


def marks(curves: Curves, picture: Picture) -> list[Json]:
    """Moments of seeds, and rollbacks, which are of none."""
    return [{"step": mark.step, "seed": mark.seed_id, "stage": mark.stage} for mark in marked(curves, picture)]


def marked(curves: Curves, picture: Picture) -> list[Mark]:
    """By step; a rollback behind what happened before the same one."""
    back = [Mark(step, "", ROLLED_BACK) for step in picture.seeds.rollbacks]
    return sorted([*curves.marks, *back], key=lambda mark: mark.step)


def columns(points: Sequence[Point]) -> list[list[float]]:
    """Six digits are more than a screen has pixels for."""
    return [[round(x, 3) for x, _ in points], [float(f"{y:.6g}") for _, y in points]]


def numbers(values: Mapping[str, float]) -> Json:
    return {name: number(values[name]) for name in sorted(values)}


def number(value: float | None) -> float | None:
    """JSON knows no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None


def _step_of(order: Order | None) -> int | None:
    """Before which the command took effect, as its acceptance says."""
    return (order.verdict.step or None) if order and order.verdict else None
