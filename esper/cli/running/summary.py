"""What a run did, from the messages that it left: the form of summary.json, and why a run was no success."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from esper.leyline import contracts as pb
from esper.leyline.lifecycle import BLENDED_STAGES, gate_name, reason_name, short
from esper.leyline.succession import Succession, in_force
from esper.narset.totals import Totals, decode
from esper.view.rounds import percentile
from esper.view.workers import Workers


@dataclass
class Collected:
    """Opened messages of one run, in the order of their streams, and the totals of the global tier."""

    run_id: str
    num_published: int = 0
    receipts: list[pb.CommandReceipt] = field(default_factory=list)
    decisions: list[Message] = field(default_factory=list)
    heartbeats: list[pb.Heartbeat] = field(default_factory=list)
    totals: Totals = field(default_factory=lambda: decode({}))
    _workers: Workers = field(default_factory=Workers)
    _reports: dict[str, pb.WorkerReport] = field(default_factory=dict)

    def note(self, message: Message) -> None:
        """Keep what a summary needs."""
        match message:
            case pb.CommandReceipt():
                self.receipts.append(message)
            case pb.BarrierCommit() | pb.BarrierAbort() | pb.LeaderAnnouncement():
                self.decisions.append(message)
            case pb.Heartbeat():
                self._note_heartbeat(message)

    def _note_heartbeat(self, beat: pb.Heartbeat) -> None:
        self.heartbeats.append(beat)
        self._workers.note(beat, beat.time_ns // 1_000_000)
        if beat.HasField("report"):
            self._reports[beat.worker] = beat.report

    @property
    def newest(self) -> list[pb.Heartbeat]:
        """The newest heartbeat of each worker, by name."""
        return [worker.beat for _, worker in sorted(self._workers.by_name.items())]

    @property
    def reports(self) -> list[pb.WorkerReport]:
        """The last words of each worker, by name."""
        return [self._reports[worker] for worker in sorted(self._reports)]

    @property
    def world_size(self) -> int:
        return self._workers.world_size

    @property
    def complete(self) -> bool:
        """Whether every rank has reported, and everything made and not shed has been folded."""
        return 0 < self.world_size == len(self.reports) and self.totals.counted == _num_packets(self) - _num_shed(self)


def summary(collected: Collected, *, wall_s: float, failure: str = "") -> dict[str, Any]:
    """The content of summary.json; every figure is read from the run, and what was never measured is null."""
    reports = collected.reports
    first = reports[0] if reports else pb.WorkerReport()
    content = {
        "run": collected.run_id,
        "ok": not failure and not shortcomings(collected),
        "wall_s": round(wall_s, 3),
        "world_size": collected.world_size,
        "steps": max((report.steps for report in reports), default=0),
        "epochs": max((report.epochs for report in reports), default=0),
        "data": {"name": first.data, "train": _whole(first.notes, "train"), "test": _whole(first.notes, "test")},
        "accuracy": {"host_before": host_accuracy(collected.heartbeats), "final": first.notes.get("accuracy")},
        "seeds": [_seed(seed) for seed in first.seeds],
        "commands": commands(collected.num_published, collected.receipts),
        "telemetry": telemetry(collected),
        "barriers": barriers(collected.decisions),
        "replicas_equal": replicas_equal(collected),
        "parameter_digest": first.parameter_digest.hex(),
    }
    return {name: _finite(value) for name, value in content.items()}


def shortcomings(collected: Collected) -> list[str]:
    """One sentence for each thing that a sound run shows and this one doesn't."""
    made, shed = _num_packets(collected), _num_shed(collected)
    deviations = barriers(collected.decisions)["deviations"]
    checks = {
        f"{len(collected.reports)} of {collected.world_size} workers reported": (
            0 < collected.world_size == len(collected.reports)
        ),
        "the replicas hold different parameters": replicas_equal(collected),
        f"{collected.totals.counted} packets were counted; expected {made} made - {shed} shed": (
            collected.totals.counted == made - shed
        ),
        "no barrier was committed": any(isinstance(each, pb.BarrierCommit) for each in collected.decisions),
        f"{deviations} votes deviated from the others": not deviations,
    }
    return [sentence for sentence, holds in checks.items() if not holds]


def host_accuracy(heartbeats: Iterable[pb.Heartbeat]) -> float | None:
    """The last accuracy noted before any seed had a say in the model's output."""
    known = None
    for beat in sorted(heartbeats, key=lambda beat: beat.time_ns):
        if any(state.stage in BLENDED_STAGES for state in beat.seeds):
            break
        known = known if math.isnan(beat.accuracy) else beat.accuracy
    return known


def commands(num_published: int, receipts: Sequence[pb.CommandReceipt]) -> dict[str, Any]:
    """Entries on the command streams; those carried out by every rank; the others by reason.

    A command that was refused counts once, by its entry; one that some rank could not carry out, as at a gate that
    held, counts with the reason that was given first.
    """
    by_entry: dict[tuple[str, str], list[pb.CommandReceipt]] = {}
    for receipt in receipts:
        by_entry.setdefault((receipt.command_id, receipt.entry_id), []).append(receipt)
    reasons = Counter(reason_name(bad.reason) for said in by_entry.values() if (bad := _refusal(said)) is not None)
    num_applied = sum(1 for said in by_entry.values() if _applied_by_all(said))
    return {"published": num_published, "applied": num_applied, "rejected": dict(sorted(reasons.items()))}


def telemetry(collected: Collected) -> dict[str, int]:
    """Packets as their makers count them, and as the global tier does."""
    totals = collected.totals
    return {
        "packets": _num_packets(collected),
        "regional": totals.regional,
        "global": totals.global_,
        "counted": totals.counted,
        "shed": _num_shed(collected),
        "gaps": totals.gaps,
        "duplicates": totals.duplicates,
    }


def barriers(decisions: Sequence[Message]) -> dict[str, Any]:
    """Rounds by their first decision of who led at its time, in stream order; latency from proposal to commit."""
    said = (each for each in decisions if isinstance(each, pb.BarrierCommit | pb.BarrierAbort | pb.LeaderAnnouncement))
    decided = list(in_force(said, Succession()))
    commits = [each for each in decided if isinstance(each, pb.BarrierCommit)]
    latencies = sorted(commit.latency_ms for commit in commits)
    return {
        "committed": len(commits),
        "aborted": len(decided) - len(commits),
        "deviations": sum(len(commit.deviating) for commit in commits),
        "latency_ms": {"p50": percentile(latencies, 50), "p99": percentile(latencies, 99)},
    }


def replicas_equal(collected: Collected) -> bool:
    """Whether every rank reported, and all the same parameters."""
    digests = [report.parameter_digest for report in collected.reports]
    return 0 < collected.world_size == len(digests) and len(set(digests)) == 1 and bool(digests[0])


def _seed(seed: pb.SeedReport) -> dict[str, Any]:
    gain = seed.paired_gain
    return {
        "id": seed.seed_id,
        "site": seed.site,
        "blueprint": seed.blueprint_id,
        "stage": short(seed.stage),
        "history": [_record(record) for record in seed.history],
        "paired_gain": (
            {"mean": gain.mean, "low": gain.low, "high": gain.high, "batches": gain.batches}
            if seed.HasField("paired_gain")
            else None
        ),
    }


def _record(record: pb.StageRecord) -> dict[str, Any]:
    return {
        "stage": short(record.stage),
        "step": record.step,
        "gate": gate_name(record.gate) if record.gate else None,
        "passed": record.passed,
        "evidence": dict(sorted(record.evidence.items())),
    }


def _refusal(said: Sequence[pb.CommandReceipt]) -> pb.CommandReceipt | None:
    bad = (pb.ReceiptStatus.RECEIPT_REJECTED, pb.ReceiptStatus.RECEIPT_FAILED)
    return next((receipt for receipt in said if receipt.status in bad), None)


def _applied_by_all(said: Sequence[pb.CommandReceipt]) -> bool:
    expected = max((r.world_size for r in said if r.status == pb.ReceiptStatus.RECEIPT_ACCEPTED), default=0)
    workers = {r.worker for r in said if r.status == pb.ReceiptStatus.RECEIPT_APPLIED}
    return 0 < expected <= len(workers)


def _num_packets(collected: Collected) -> int:
    return sum(report.packets for report in collected.reports)


def _num_shed(collected: Collected) -> int:
    return sum(report.shed for report in collected.reports)


def _whole(notes: Mapping[str, float], name: str) -> int | None:
    return int(notes[name]) if name in notes else None


def _finite(value: Any) -> Any:
    """JSON knows no NaN and no infinity."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list():
            return [_finite(each) for each in value]
        case _:
            return value
