"""One message of each kind that travels under a seal, as a run of some size would say it."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping

from google.protobuf.message import Message

from esper.leyline import contracts as pb

DIGEST = bytes(range(32))
AT_NS = 1_700_000_000_000_000_000  # of rows in columns: a time of their own, as their frame has none
METRICS = {"loss": 0.41, "lr": 0.001, "acc": 0.93, "norm": 1.7, "step_ms": 0.8}
STATISTICS = pb.MetricStatistics(
    count=32, sum=13.1, mean=0.409, m2=0.12, min=0.38, max=0.44, last=0.41, last_source="worker-0", last_sequence=32
)
BLENDING = pb.SeedLifecycleStage.SEED_STAGE_BLENDING


def command() -> pb.AdaptationCommand:
    """Of the shape that the kernel-execution seed measures, with a seed operation."""
    seed = pb.SeedCommand(seed_id="s0", operation=pb.SeedOperation.SEED_OP_GERMINATE, site="head", blueprint_id="lora")
    kind = pb.CommandType.COMMAND_SEED
    return pb.AdaptationCommand(version=1, command_id="c-0001", command_type=kind, seed_command=seed)


def optimizer() -> pb.OptimizerCommand:
    kind = pb.OptimizerCommandType.OPTIMIZER_COMMAND_STEP
    return pb.OptimizerCommand(version=1, command_id="o-0001", command_type=kind, optimizer_id="s0", num_steps=32)


def packet(sequence: int = 1) -> pb.TelemetryPacket:
    """Five metrics of one step, names of up to eight bytes."""
    return pb.TelemetryPacket(
        version=1, sequence=sequence, timestamp_ns=time.time_ns(), global_step=40_000 + sequence, values=METRICS
    )


def frame() -> pb.TelemetryFrame:
    packets = [packet(1 + at) for at in range(32)]
    return pb.TelemetryFrame(version=1, source="worker-0", incarnation=7, region="eu", packets=packets)


def columns() -> pb.ColumnarFrame:
    """256 rows of five columns."""
    return pb.ColumnarFrame(
        version=1,
        source="worker-0",
        incarnation=7,
        first_sequence=1,
        schema=schema(),
        region="eu",
        timestamp_ns=struct.pack("<256Q", *[AT_NS] * 256),
        global_step=struct.pack("<256Q", *range(256)),
        values=struct.pack("<1280d", *[0.41] * 1280),
    )


def schema() -> pb.MetricSchema:
    return pb.MetricSchema(version=1, names=sorted(METRICS))


def state() -> pb.SystemStatePacket:
    """Section 2.1 of the performance-validation seed, metrics under names of at most eight bytes."""
    hardware = pb.HardwareContext(device_type="cuda", device_id="0", total_memory_gb=40, utilization_percent=85)
    return pb.SystemStatePacket(
        version=1,
        current_epoch=5000,
        validation_accuracy=0.987,
        validation_loss=0.045,
        timestamp_ns=time.time_ns(),
        hardware_context=hardware,
        training_metrics={"loss": 0.045, "accuracy": 0.987, "lr": 0.001, "gradnorm": 1.23},
    )


def seed_states(num: int = 4) -> list[pb.SeedState]:
    return [
        pb.SeedState(seed_id=f"s{at}", stage=BLENDING, site=f"blocks.{at}", blueprint_id="lora", alpha=0.5)
        for at in range(num)
    ]


def heartbeat() -> pb.Heartbeat:
    return pb.Heartbeat(version=1, worker="worker-0", incarnation=7, world_size=8, step=400, seeds=seed_states())


def vote(worker: str = "worker-0", number: int = 1) -> pb.BarrierVote:
    return pb.BarrierVote(
        version=1,
        round=number,
        roster_generation=1,
        worker=worker,
        step=400,
        parameter_digest=DIGEST,
        seeds=seed_states(),
        optimizers={"host": 1},
    )


def proposal() -> pb.BarrierProposal:
    roster = [f"worker-{rank}" for rank in range(8)]
    return pb.BarrierProposal(version=1, round=1, roster_generation=1, roster=roster, time_ns=time.time_ns())


def commit() -> pb.BarrierCommit:
    committed = pb.CommittedCommand(stream="commands", entry_id="1-0", command_id="c-0001", envelope_digest=DIGEST)
    return pb.BarrierCommit(
        version=1, round=1, roster_generation=1, effective_step=408, commands=[committed], digest=DIGEST
    )


def abort() -> pb.BarrierAbort:
    reason = pb.ReasonCode.REASON_TIMEOUT
    return pb.BarrierAbort(version=1, round=1, roster_generation=1, reason=reason, missing=["worker-3"])


def receipt() -> pb.CommandReceipt:
    applied = pb.ReceiptStatus.RECEIPT_APPLIED
    return pb.CommandReceipt(version=1, command_id="c-0001", entry_id="1-0", status=applied, worker="worker-0")


def record() -> pb.RunRecord:
    judged = pb.RoundJudged(round=1, outcomes=[receipt()])
    return pb.RunRecord(version=1, worker="worker-0", incarnation=7, world_size=8, judged=judged)


def aggregate() -> pb.AggregatedTelemetry:
    metrics = dict.fromkeys(METRICS, STATISTICS)
    return pb.AggregatedTelemetry(version=1, region="eu", sequence=1, num_packets=32, num_messages=1, metrics=metrics)


def emergency() -> pb.EmergencySignal:
    level = pb.EmergencyLevel.EMERGENCY_ELEVATED
    return pb.EmergencySignal(version=1, level=level, reason="breaker.opened", origin="worker-0", packet_sequence=9)


def field_report() -> pb.FieldReport:
    kept = pb.FieldReportOutcome.FIELD_REPORT_SUCCESS
    return pb.FieldReport(
        version=1, report_id="r-1", seed_id="s0", blueprint_id="lora", outcome=kept, metrics=METRICS, observed_to_step=9
    )


def announcement() -> pb.LeaderAnnouncement:
    return pb.LeaderAnnouncement(version=1, leader="coordinator-0", lease_token=7, time_ns=time.time_ns())


MESSAGES: Mapping[str, Callable[[], Message]] = {
    "adaptation command": command,
    "optimizer command": optimizer,
    "barrier vote": vote,
    "barrier proposal": proposal,
    "barrier commit": commit,
    "barrier abort": abort,
    "leader announcement": announcement,
    "command receipt": receipt,
    "run record": record,
    "frame of 32 packets": frame,
    "telemetry packet": packet,
    "metric schema": schema,
    "columns of 256 rows": columns,
    "aggregated telemetry": aggregate,
    "emergency signal": emergency,
    "system state": state,
    "field report": field_report,
    "heartbeat": heartbeat,
}
