"""Nothing that travels is without bounds: each field of each message is spoilt in turn, those of nested ones too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.kinds import domain_of_kind, kind_of
from esper.leyline.validate.messages import validate
from tests.test_validate import DIGEST, GOOD, packet

SEED = pb.SeedState(seed_id="s0", metrics={"a": 1})
PLAN = pb.StructuralPruningRequest(
    request_id="p",
    phase=pb.PruningPhase.PRUNING_PHASE_ACTIVE,
    importance=[pb.ChannelImportance(parameter="w", mask_type=pb.PruningMaskType.PRUNING_MASK_UNSTRUCTURED)],
    num_parts=1,
)
REPORT = pb.WorkerReport(
    worker="w", seeds=[pb.SeedReport(seed_id="s0", history=[pb.StageRecord(evidence={"a": 1})])], notes={"a": 1}
)
EVENT = pb.TelemetryEvent(event_id="e", attributes={"a": "b"})


def adaptation(kind: pb.CommandType, **carried: Message) -> pb.AdaptationCommand:
    return pb.AdaptationCommand(version=1, command_id="c1", command_type=kind, **carried)  # type: ignore[arg-type]


def record(**said: Message) -> pb.RunRecord:
    return pb.RunRecord(version=1, worker="w", world_size=1, **said)  # type: ignore[arg-type]


FULL: list[Message] = [
    *GOOD.values(),
    packet(),
    adaptation(pb.CommandType.COMMAND_ROLLBACK, rollback_command=pb.RollbackCommand()),
    adaptation(
        pb.CommandType.COMMAND_CIRCUIT_BREAKER,
        circuit_breaker=pb.CircuitBreakerCommand(seed_id="s0", desired_state=pb.CircuitBreakerState.BREAKER_CLOSED),
    ),
    adaptation(pb.CommandType.COMMAND_PAUSE, pause_command=pb.PauseCommand()),
    adaptation(
        pb.CommandType.COMMAND_EMERGENCY,
        emergency_command=pb.EmergencyCommand(level=pb.EmergencyLevel.EMERGENCY_NOTICE),
    ),
    adaptation(pb.CommandType.COMMAND_STRUCTURAL_PRUNING, structural_pruning=PLAN),
    adaptation(
        pb.CommandType.COMMAND_PRUNING_MASKS,
        pruning_masks=pb.StructuralPruningResponse(
            request_id="p",
            pruning_masks=[
                pb.PruningMask(
                    parameter="w", mask_type=pb.PruningMaskType.PRUNING_MASK_UNSTRUCTURED, kept=b"\1", num_channels=1
                )
            ],
        ),
    ),
    record(began=pb.RunBegan(first_step=1, parameter_digest=DIGEST, num_threads=1)),
    record(judged=pb.RoundJudged(round=1, outcomes=[GOOD["receipt"]])),  # type: ignore[list-item]
    record(ended=pb.RunEnded(report=REPORT)),
    pb.BarrierAbort(version=1, round=1, evicted=[pb.EvictedProcess(worker="w", positions={"a": "1-0"})]),
    pb.BarrierVote(version=1, round=1, worker="w", seeds=[SEED], snapshots=[pb.SnapshotRef()]),
    pb.BarrierCommit(
        version=1,
        round=1,
        digest=DIGEST,
        requests=[pb.SeedRequest(seed_id="s0", operation=pb.SeedOperation.SEED_OP_CULL)],
    ),
    pb.Heartbeat(
        version=1,
        worker="w",
        world_size=1,
        seeds=[SEED],
        blueprints=[pb.KernelManifest(version=1, blueprint_id="b", parameters=[pb.BlueprintParameter(name="rank")])],
        report=REPORT,
        pruning=PLAN,
    ),
    pb.TelemetryPacket(
        version=1,
        sequence=1,
        metrics=[pb.MetricPoint(name="loss", labels={"a": "b"})],
        events=[EVENT],
        system_health=pb.SystemHealth(),
    ),
    pb.AggregatedTelemetry(version=1, sequence=1, events=[EVENT]),
    pb.SystemStatePacket(version=1, seed_states=[SEED], hardware_context=pb.HardwareContext()),
]

MEASURED = frozenset(
    (
        *("loss", "accuracy", "training_loss", "validation_loss", "validation_accuracy", "training_metrics"),
        *("values", "value", "metrics", "notes", "evidence", "gradient_norm", "learning_rate", "risk_score"),
        *("Heartbeat.hyperparameters", "default_value", "memory_used_gb", "cpu_percent", "total_memory_gb"),
        *("available_memory_gb", "temperature_celsius", "utilization_percent"),
    )
)
"""Fields where a NaN is news, and no error."""
CALLED = {
    "BarrierVote.optimizers": "optimizer",
    "SystemStatePacket.seed_states": "seeds",
    "TelemetryPacket.metrics": "metric name",
    "ChannelImportance.gradient_norm": "as many values of each kind",
    "ChannelImportance.taylor": "as many values of each kind",
    "ChannelImportance.fisher": "as many values of each kind",
    "PruningMask.kept": "bytes of the mask",
    "BlueprintParameter.maximum": "a minimum up to",
    "EvictedProcess.worker": "evicted",
}
"""What a refusal names instead of the field."""
NUM_MANY, NUM_FEW = 70_000, 5_000
LARGE = ("importance", "rounds_again")  # of which there may be 65,536
SPOILT: dict[int, object] = {
    Field.TYPE_STRING: "x" * 5_000,
    Field.TYPE_BYTES: bytes(70_000),
    Field.TYPE_ENUM: 99,
    Field.TYPE_DOUBLE: math.nan,
    Field.TYPE_FLOAT: math.nan,
}


def is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def places(message: Message, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every field of it and of the messages in it, behind the names of those that hold it."""
    for field in message.DESCRIPTOR.fields:
        yield path, field
    for field, value in message.ListFields():
        if field.message_type is not None and not is_map(field):
            yield from places(value[0] if field.is_repeated else value, (*path, field.name))


def inner(message: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = getattr(message, name)
        message = value[0] if message.DESCRIPTOR.fields_by_name[name].is_repeated else value
    return message


def spoiling(field: Any) -> Iterator[Callable[[Any], None]]:
    """What a sender may do to a field: more than there can be, too long, no member, no number."""
    if is_map(field):
        yield from spoiling_map(field)
        return
    value, is_one_of_many = SPOILT.get(field.type), field.is_repeated
    if is_one_of_many:
        num = NUM_MANY if field.name in LARGE else NUM_FEW
        yield lambda holder: holder.MergeFromString(one(field) * num)
    if value is not None and not (value is math.nan and is_measured(field)):
        yield lambda holder: put(holder, field.name, value, is_one_of_many)


def put(holder: Any, name: str, value: object, is_one_of_many: bool) -> None:
    if is_one_of_many:
        getattr(holder, name).append(value)
    else:
        setattr(holder, name, value)


def one(field: Any) -> bytes:
    """One element that says nothing, on the wire."""
    holder: Message = field.containing_type._concrete_class()
    elements = getattr(holder, field.name)
    if field.message_type is not None:
        elements.add()
    else:
        elements.append("x" if field.type == Field.TYPE_STRING else 1)
    return holder.SerializeToString()


def spoiling_map(field: Any) -> Iterator[Callable[[Any], None]]:
    of = field.message_type.fields_by_name["value"]
    if of.message_type is not None:
        yield lambda holder: getattr(holder, field.name)["x" * 5_000].SetInParent()
        yield lambda holder: fill(getattr(holder, field.name))
        return
    plain: Any = "" if of.type == Field.TYPE_STRING else 1
    yield lambda holder: getattr(holder, field.name).update({"x" * 5_000: plain})
    yield lambda holder: getattr(holder, field.name).update({str(n): plain for n in range(NUM_FEW)})
    if of.type in SPOILT and not is_measured(field):
        yield lambda holder: getattr(holder, field.name).update({"a": SPOILT[of.type]})


def fill(table: Any) -> None:
    for number in range(NUM_FEW):
        table[str(number)].SetInParent()


def is_measured(field: Any) -> bool:
    return not MEASURED.isdisjoint((field.name, named(field)))


def named(field: Any) -> str:
    return f"{field.containing_type.name}.{field.name}"


def refused_for(message: Message, field: Any) -> bool:
    try:
        validate(message)
    except RefusedError as error:
        return CALLED.get(named(field), field.name) in error.detail
    return False


@pytest.mark.parametrize("full", FULL, ids=lambda full: full.DESCRIPTOR.name)
def test_each_field_is_bounded_and_a_refusal_names_it(full: Message) -> None:
    validate(full)

    unbounded = []
    for path, field in places(full):
        for spoil in spoiling(field):
            message = type(full)()
            message.CopyFrom(full)
            spoil(inner(message, path))
            if not refused_for(message, field):
                unbounded.append((*path, field.name))

    assert unbounded == []


def test_every_message_that_travels_is_tried() -> None:
    assert {kind_of(type(full)) for full in FULL} == {kind for kind in range(1100) if domain_of_kind(kind) is not None}
