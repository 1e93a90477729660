"""summary.json says what the messages of a run show, and ok only where nothing is missing."""

from __future__ import annotations

import json
import math

import pytest

from esper.cli.demo import rows
from esper.cli.output.dashboard import line
from esper.cli.running.summary import Collected, barriers, commands, host_accuracy, shortcomings, summary
from esper.leyline import contracts as pb
from esper.narset import totals
from esper.view.rounds import percentile
from tests.view_kit import grown

ACCEPTED, REJECTED, APPLIED, FAILED = (
    pb.ReceiptStatus.RECEIPT_ACCEPTED,
    pb.ReceiptStatus.RECEIPT_REJECTED,
    pb.ReceiptStatus.RECEIPT_APPLIED,
    pb.ReceiptStatus.RECEIPT_FAILED,
)
Stage, Gate, Reason = pb.SeedLifecycleStage, pb.SeedLifecycleGate, pb.ReasonCode


def receipt(
    command: str, status: pb.ReceiptStatus, worker: str = "coordinator", entry: str = "1-0", reason: int = 0
) -> pb.CommandReceipt:
    told = pb.CommandReceipt(command_id=command, status=status, worker=worker, entry_id=entry, world_size=2)
    told.reason = reason  # type: ignore[assignment]
    return told


def applied(command: str, entry: str, *workers: str) -> list[pb.CommandReceipt]:
    accepted = receipt(command, ACCEPTED, entry=entry)
    return [accepted, *(receipt(command, APPLIED, worker, entry) for worker in workers)]


def beat(worker: str, time_ns: int, accuracy: float = math.nan, stage: pb.SeedLifecycleStage | int = 0) -> pb.Heartbeat:
    states = [pb.SeedState(seed_id="s0", stage=stage)] if stage else []  # type: ignore[arg-type]
    return pb.Heartbeat(worker=worker, world_size=2, time_ns=time_ns, accuracy=accuracy, seeds=states)


def farewell(worker: str, digest: bytes = b"\x07" * 32, packets: int = 500, shed: int = 20) -> pb.Heartbeat:
    gain = pb.PairedGain(mean=0.25, low=0.125, high=0.5, examples=360, batches=3)
    history = [
        pb.StageRecord(stage=Stage.SEED_STAGE_GERMINATED, step=40, gate=Gate.SEED_GATE_G0_SANITY, passed=True),
        pb.StageRecord(stage=Stage.SEED_STAGE_TRAINING, step=48, evidence={"ratio": math.inf}),
    ]
    seed = pb.SeedReport(
        seed_id="s0", site="head", blueprint_id="lora", stage=Stage.SEED_STAGE_FOSSILIZED, history=history
    )
    seed.paired_gain.CopyFrom(gain)
    report = pb.WorkerReport(
        worker=worker,
        steps=900,
        epochs=9,
        parameter_digest=digest,
        seeds=[seed, pb.SeedReport(seed_id="s1", stage=Stage.SEED_STAGE_DORMANT)],
        packets=packets,
        shed=shed,
        notes={"accuracy": 0.9, "train": 1077, "test": 360},
        data="digits",
    )
    said = beat(worker, 10**9)
    said.report.CopyFrom(report)
    return said


def commit(round_: int, latency_ms: float, deviating: tuple[str, ...] = ()) -> pb.BarrierCommit:
    return pb.BarrierCommit(round=round_, latency_ms=latency_ms, deviating=deviating)


def sound_run() -> Collected:
    collected = Collected("demo-01234567", num_published=4)
    messages = [
        beat("worker-0", 1, 0.5),
        beat("worker-0", 2, 0.6, Stage.SEED_STAGE_TRAINING),
        beat("worker-0", 3, 0.8, Stage.SEED_STAGE_BLENDING),
        *applied("c1", "1-0", "worker-0", "worker-1"),
        commit(1, 4.0),
        farewell("worker-0"),
        farewell("worker-1"),
    ]
    for message in messages:
        collected.note(message)
    fields = totals.encode(totals.Totals(960, 40, 3, shed=40, gaps=1, duplicates=2, aggregate=pb.AggregatedTelemetry()))
    collected.totals = totals.decode({name.encode(): value for name, value in fields.items()})
    return collected


def test_a_sound_run_is_told_in_the_agreed_form() -> None:
    told = summary(sound_run(), wall_s=61.23456)

    assert told == {
        "run": "demo-01234567",
        "ok": True,
        "wall_s": 61.235,
        "world_size": 2,
        "steps": 900,
        "epochs": 9,
        "data": {"name": "digits", "train": 1077, "test": 360},
        "accuracy": {"host_before": 0.6, "final": 0.9},
        "seeds": [
            {
                "id": "s0",
                "site": "head",
                "blueprint": "lora",
                "stage": "FOSSILIZED",
                "history": [
                    {"stage": "GERMINATED", "step": 40, "gate": "G0_SANITY", "passed": True, "evidence": {}},
                    {"stage": "TRAINING", "step": 48, "gate": None, "passed": False, "evidence": {"ratio": None}},
                ],
                "paired_gain": {"mean": 0.25, "low": 0.125, "high": 0.5, "batches": 3},
            },
            {"id": "s1", "site": "", "blueprint": "", "stage": "DORMANT", "history": [], "paired_gain": None},
        ],
        "commands": {"published": 4, "applied": 1, "rejected": {}},
        "telemetry": {
            "packets": 1000,
            "regional": 40,
            "global": 3,
            "counted": 960,
            "shed": 40,
            "gaps": 1,
            "duplicates": 2,
        },
        "barriers": {"committed": 1, "aborted": 0, "deviations": 0, "latency_ms": {"p50": 4.0, "p99": 4.0}},
        "replicas_equal": True,
        "parameter_digest": "07" * 32,
    }
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_a_command_counts_as_applied_once_every_rank_has_applied_it() -> None:
    half = applied("c2", "2-0", "worker-0", "worker-0")

    told = commands(3, [*applied("c1", "1-0", "worker-0", "worker-1"), *half])

    assert told == {"published": 3, "applied": 1, "rejected": {}}


def test_what_was_refused_or_failed_counts_once_by_reason() -> None:
    said = [
        receipt("", REJECTED, entry="3-0", reason=Reason.REASON_BAD_SEAL),
        receipt("", REJECTED, entry="4-0", reason=Reason.REASON_BAD_SEAL),
        receipt("", REJECTED, entry="5-0", reason=Reason.REASON_REPLAYED),
        receipt("", REJECTED, entry="5-0", reason=Reason.REASON_REPLAYED),
        receipt("c6", ACCEPTED, entry="6-0"),
        receipt("c6", FAILED, "worker-0", "6-0", Reason.REASON_GATE_FAILED),
        receipt("c6", FAILED, "worker-1", "6-0", Reason.REASON_GATE_FAILED),
    ]

    assert commands(4, said)["rejected"] == {"bad_seal": 2, "gate_failed": 1, "replayed": 1}


def test_the_first_decision_of_a_round_counts() -> None:
    told = barriers([commit(1, 3.0), pb.BarrierAbort(round=1), pb.BarrierAbort(round=2), commit(3, 9.0, ("worker-1",))])

    assert told == {"committed": 2, "aborted": 1, "deviations": 1, "latency_ms": {"p50": 3.0, "p99": 9.0}}


def test_what_a_leader_decides_after_the_next_one_was_announced_counts_for_nothing() -> None:
    said = [
        pb.BarrierCommit(round=1, latency_ms=3.0, lease_token=1),
        pb.LeaderAnnouncement(leader="coordinator-2", lease_token=2),
        pb.BarrierAbort(round=2, lease_token=1),
        pb.BarrierCommit(round=2, latency_ms=5.0, lease_token=2),
    ]
    collected = Collected("demo-01234567")
    for message in said:
        collected.note(message)

    told = barriers(collected.decisions)

    assert (told["committed"], told["aborted"], told["latency_ms"]["p99"]) == (2, 0, 5.0)


@pytest.mark.parametrize(("percent", "expected"), [(50, 50.0), (99, 99.0), (100, 100.0), (1, 1.0)])
def test_percentiles_are_the_nearest_rank(percent: int, expected: float) -> None:
    assert percentile([float(value) for value in range(1, 101)], percent) == expected


def test_accuracy_of_the_host_is_the_last_one_before_any_seed_had_a_say() -> None:
    seen = [beat("worker-0", 2, 0.6), beat("worker-0", 1, 0.5), beat("worker-1", 3), beat("worker-0", 4, 0.9, 4)]

    assert host_accuracy(seen) == 0.6
    assert host_accuracy([beat("worker-0", 1)]) is None


def test_a_run_is_not_ok_when_something_is_missing() -> None:
    lost, unequal, silent = sound_run(), sound_run(), Collected("demo-01234567")
    lost.totals = totals.decode({})
    unequal.note(farewell("worker-1", digest=b"\x08" * 32))

    assert shortcomings(sound_run()) == []
    assert shortcomings(lost) == ["0 packets were counted; expected 1000 made - 40 shed"]
    assert shortcomings(unequal) == ["the replicas hold different parameters"]
    assert "0 of 0 workers reported" in shortcomings(silent)
    assert not summary(sound_run(), wall_s=1.0, failure="controller ended with exit code 1")["ok"]


def test_a_run_that_said_nothing_can_still_be_told() -> None:
    told = summary(Collected("demo-01234567"), wall_s=0.5)

    assert not told["ok"]
    assert told["accuracy"] == {"host_before": None, "final": None}
    assert told["barriers"]["latency_ms"] == {"p50": None, "p99": None}


def test_the_line_of_a_run_shows_its_picture() -> None:
    shown = line(grown(), 12.0, "growing seeds")

    assert "growing seeds" in shown
    assert "5 published 2 applied 2 rejected" in shown
    assert "9216 -> 288 -> 9" in shown
    assert "seeds bad=EMBARGOED lora=BLENDING mlp=FOSSILIZED" in shown


def test_the_closing_table_shows_what_was_collected() -> None:
    table = dict(rows(summary(sound_run(), wall_s=61.0)))

    assert table["packets"] == "1000 made, 960 counted, 40 shed"
    assert table["seed s0"] == "FOSSILIZED (lora at head), gain 0.2500 [0.1250, 0.5000]"
