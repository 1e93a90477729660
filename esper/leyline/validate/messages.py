"""Ranges of every message that travels under a seal: what parses is not yet what makes sense."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from google.protobuf.message import Message

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.validate import bounds
from esper.leyline.validate.commands import adaptation_command, optimizer_command
from esper.leyline.validate.rounds import (
    HeartbeatRule,
    barrier_abort,
    barrier_commit,
    barrier_proposal,
    barrier_vote,
    leader_announcement,
    receipt,
)
from esper.leyline.validate.runs import run_record
from esper.leyline.validate.telemetry import (
    Names,
    aggregate,
    columnar_frame,
    emergency_signal,
    field_report,
    metric_schema,
    packet,
    system_state,
    telemetry_frame,
)

Rule: TypeAlias = Callable[[Any], Names]
"""Refuses a message with a value that no run can mean; of telemetry it says what is in it."""

# Each rule takes its own message type; the table pairs them, so its values can't be typed more closely.
_RULES: Mapping[type[Message], Rule] = {
    pb.AdaptationCommand: adaptation_command,
    pb.OptimizerCommand: optimizer_command,
    pb.BarrierVote: barrier_vote,
    pb.BarrierProposal: barrier_proposal,
    pb.BarrierCommit: barrier_commit,
    pb.BarrierAbort: barrier_abort,
    pb.LeaderAnnouncement: leader_announcement,
    pb.CommandReceipt: receipt,
    pb.RunRecord: run_record,
    pb.TelemetryFrame: telemetry_frame,
    pb.TelemetryPacket: packet,
    pb.MetricSchema: metric_schema,
    pb.ColumnarFrame: columnar_frame,
    pb.AggregatedTelemetry: aggregate,
    pb.EmergencySignal: emergency_signal,
    pb.SystemStatePacket: system_state,
    pb.FieldReport: field_report,
}


def validate(message: Message) -> None:
    """Refuse a message of another version, or with a value that no run can mean."""
    rule = rule_of(type(message))
    bounds.version(message)
    rule(message)


def rule_of(message_type: type[Message]) -> Rule:
    """What refuses such messages with a value that no run can mean; their version is looked at before."""
    if message_type is pb.Heartbeat:
        return HeartbeatRule()  # for whoever asks alone: it remembers what has passed
    rule = _RULES.get(message_type)
    if rule is None:
        name = message_type.DESCRIPTOR.name
        raise RefusedError(pb.ReasonCode.REASON_WRONG_TYPE, f"{name} does not travel under a seal")
    return rule
