"""What parses but makes no sense is refused, with the field, the value and what was expected."""

from __future__ import annotations

import math

import pytest
from google.protobuf.message import Message

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, domain_of, kind_of, type_of
from esper.leyline.validate.messages import validate
from tests.sealed import ENTRY, NOW_MS, command, controller, refusal, worker_opener

DIGEST = bytes(32)


def committed() -> pb.CommittedCommand:
    return pb.CommittedCommand(stream="commands", entry_id="1-0", command_id="c1", envelope_digest=DIGEST)


def packet(sequence: int = 1) -> pb.TelemetryPacket:
    return pb.TelemetryPacket(version=1, sequence=sequence, values={"loss": 0.5})


GOOD: dict[str, Message] = {
    "command": command(),
    "germinate": pb.AdaptationCommand(
        version=1,
        command_id="c1",
        command_type=pb.CommandType.COMMAND_SEED,
        seed_command=pb.SeedCommand(
            seed_id="s0",
            operation=pb.SeedOperation.SEED_OP_GERMINATE,
            site="head",
            blueprint_id="lora",
            parameters={"rank": 4},
        ),
    ),
    "adjust": pb.AdaptationCommand(
        version=1,
        command_id="c1",
        command_type=pb.CommandType.COMMAND_OPTIMIZER,
        optimizer_adjustment=pb.OptimizerAdjustment(optimizer_id="host", hyperparameters={"lr": 0.1}),
    ),
    "optimizer": pb.OptimizerCommand(
        version=1, command_id="c1", command_type=pb.OptimizerCommandType.OPTIMIZER_COMMAND_STEP, optimizer_id="s0"
    ),
    "vote": pb.BarrierVote(
        version=1,
        round=1,
        worker="worker-0",
        parameter_digest=DIGEST,
        seeds=[pb.SeedState(seed_id="s0", stage=pb.SeedLifecycleStage.SEED_STAGE_TRAINING, gradient_norm=math.inf)],
        requests=[pb.SeedRequest(seed_id="s0", operation=pb.SeedOperation.SEED_OP_CULL)],
        optimizers={"host": 1},
    ),
    "proposal": pb.BarrierProposal(version=1, round=1, roster=["worker-0", "worker-1"]),
    "commit": pb.BarrierCommit(version=1, round=1, digest=DIGEST, commands=[committed()]),
    "abort": pb.BarrierAbort(version=1, round=1, reason=pb.ReasonCode.REASON_TIMEOUT),
    "leader": pb.LeaderAnnouncement(version=1, leader="coordinator", lease_token=1),
    "receipt": pb.CommandReceipt(
        version=1,
        command_id="c1",
        status=pb.ReceiptStatus.RECEIPT_FAILED,
        reason=pb.ReasonCode.REASON_GATE_FAILED,
        worker="worker-0",
        evidence={"variance": math.nan},
    ),
    "frame": pb.TelemetryFrame(version=1, source="worker-0", packets=[packet(n) for n in range(1, 33)]),
    "aggregate": pb.AggregatedTelemetry(
        version=1, sequence=1, metrics={"loss": pb.MetricStatistics(count=1, min=1, max=2, last=1, m2=math.inf)}
    ),
    "heartbeat": pb.Heartbeat(
        version=1,
        worker="worker-0",
        world_size=2,
        rank=1,
        loss=math.nan,
        accuracy=math.nan,
        report=pb.WorkerReport(worker="worker-0"),
    ),
    "emergency": pb.EmergencySignal(version=1, level=pb.EmergencyLevel.EMERGENCY_NOTICE, origin="worker-0"),
    "columns": pb.ColumnarFrame(
        version=1,
        source="w",
        first_sequence=1,
        schema=pb.MetricSchema(version=1, names=["loss", "lr"]),
        timestamp_ns=bytes(16),
        global_step=bytes(16),
        values=bytes(32),
    ),
    "schema": pb.MetricSchema(version=1, names=["loss", "lr"], units=["nat", ""]),
    "state": pb.SystemStatePacket(version=1, training_metrics={"loss": math.nan}),
    "report": pb.FieldReport(
        version=1, report_id="r", blueprint_id="lora", outcome=pb.FieldReportOutcome.FIELD_REPORT_SUCCESS
    ),
}

BAD: list[tuple[str, str, str]] = [
    ("command", "m.command_id = ''", "command_id"),
    ("command", "m.command_id = 'x' * 65", "at most 64 bytes, not 65"),
    ("command", "m.command_id = 'é' * 33", "at most 64 bytes, not 66"),
    ("command", "m.command_type = 0", "command_type"),
    ("command", "m.command_type = 99", "command_type is 99"),
    ("command", "m.command_type = 5", "pause_command, as command_type COMMAND_PAUSE says"),
    ("command", "m.ClearField('seed_command')", "command is None"),
    ("command", "m.priority = 77", "priority"),
    ("command", "m.seed_command.operation = 0", "operation"),
    ("command", "m.seed_command.seed_id = ''", "seed_id"),
    ("command", "m.annotations.update({str(n): '' for n in range(17)})", "number of annotations is 17"),
    ("germinate", "m.seed_command.site = ''", "site"),
    ("germinate", "m.seed_command.blueprint_id = ''", "blueprint_id"),
    ("germinate", "m.seed_command.parameters['rank'] = float('nan')", r"parameters\['rank'\] is nan"),
    ("germinate", "m.seed_command.parameters['rank'] = float('inf')", "finite"),
    ("germinate", "m.seed_command.operation, m.seed_command.parameters['alpha'] = 12, 1.5", "between 0 and 1"),
    ("germinate", "m.seed_command.parameters.update({str(n): 0 for n in range(65)})", "at most 64"),
    ("adjust", "m.optimizer_adjustment.hyperparameters['lr'] = float('nan')", "finite"),
    ("adjust", "m.optimizer_adjustment.hyperparameters.clear()", "something to set or to release"),
    ("adjust", "m.optimizer_adjustment.release.append('lr')", "does not set"),
    ("adjust", "m.optimizer_adjustment.optimizer_id = ''", "optimizer_id"),
    ("optimizer", "m.command_type = 0", "command_type"),
    ("optimizer", "m.optimizer_id = ''", "optimizer_id"),
    ("optimizer", "m.grad_clip_norm = -1", "grad_clip_norm"),
    ("optimizer", "m.grad_clip_norm = float('nan')", "grad_clip_norm"),
    ("optimizer", "m.hyperparameters['lr'] = float('-inf')", "finite"),
    ("vote", "m.round = 0", "round"),
    ("vote", "m.worker = ''", "worker"),
    ("vote", "m.parameter_digest = b'x'", "32 bytes, not 1"),
    ("vote", "m.seeds[0].stage = 12", "stage"),
    ("vote", "m.seeds[0].alpha = float('nan')", "alpha"),
    ("vote", "m.requests[0].operation = 0", "operation"),
    ("vote", "m.seeds.extend([m.seeds[0]] * 1024)", "number of seeds is 1025"),
    ("vote", "m.requests.extend([m.requests[0]] * 1024)", "number of requests is 1025"),
    ("vote", "m.step = (1 << 64) - 1", "step"),
    ("vote", "m.held_step = (1 << 64) - 1", "held_step"),
    ("proposal", "m.round = (1 << 64) - 1", "round is 18446744073709551615; expected at most"),
    ("proposal", "m.roster_generation = (1 << 32) - 1", "roster_generation"),
    ("commit", "m.round = (1 << 64) - 1", "round"),
    ("commit", "m.lease_token = (1 << 64) - 1", "lease_token"),
    ("abort", "m.roster_generation = (1 << 32) - 1", "roster_generation"),
    ("leader", "m.lease_token = (1 << 64) - 1", "lease_token"),
    ("proposal", "m.roster.append('worker-0')", "each named once"),
    ("proposal", "m.ClearField('roster')", "at least one worker"),
    ("commit", "m.digest = b''", "digest"),
    ("commit", "m.deviating.extend(['worker-0'] * 4097)", "number of deviating is 4097"),
    ("commit", "m.quarantined.append('')", "quarantined"),
    ("commit", "m.commands[0].stream = 'votes'", "commands or optimizer"),
    ("commit", "m.commands[0].envelope_digest = b''", "envelope_digest"),
    ("abort", "m.reason = 55", "reason is 55"),
    ("abort", "m.evicted.add()", "evicted"),
    ("receipt", "m.status = 0", "status"),
    ("receipt", "m.worker = ''", "worker"),
    ("receipt", "m.command_id = ''", "entry_id"),
    ("receipt", "m.entry_id = 'anything'", "an entry id such as"),
    ("receipt", "m.entry_id = '7'", "an entry id such as"),
    ("commit", "m.commands[0].entry_id = 'anything'", "an entry id such as"),
    ("receipt", "m.gate = 9", "gate"),
    ("frame", "m.packets.append(packet(33))", "number of packets is 33"),
    ("frame", "m.packets[1].sequence = 1", "one above 1"),
    ("frame", "m.packets[0].sequence = 0", "sequence"),
    ("frame", "m.source = ''", "source"),
    ("frame", "m.packets[0].level = 9", "level"),
    ("aggregate", "m.sequence = 0", "sequence"),
    ("aggregate", "m.metrics['loss'].min = 3", "min of loss"),
    ("aggregate", "m.metrics['loss'].max = float('nan')", "max of loss"),
    ("aggregate", "m.metrics['loss'].m2 = -1", "m2 of loss"),
    ("aggregate", "m.metrics['loss'].sketch = bytes(1 << 17)", "sketch of loss"),
    ("heartbeat", "m.rank = 2", "below world_size 2"),
    ("heartbeat", "m.world_size = 0", "world_size"),
    ("heartbeat", "m.busy = 9", "busy"),
    ("heartbeat", "m.lease_token = (1 << 64) - 1", "lease_token"),
    ("heartbeat", "m.roster_generation = (1 << 32) - 1", "roster_generation"),
    ("heartbeat", "m.round_met = (1 << 64) - 1", "round_met"),
    ("heartbeat", "m.round_applied = (1 << 64) - 1", "round_applied"),
    ("heartbeat", "m.step = (1 << 64) - 1", "step"),
    ("heartbeat", "m.sites.append('')", "sites"),
    ("emergency", "m.level = 0", "level"),
    ("columns", "m.values += bytes(8)", "2 columns of 2 rows"),
    ("columns", "m.global_step = bytes(8)", "global_step"),
    ("columns", "m.timestamp_ns = bytes(17)", "timestamp_ns is '17 bytes'"),
    ("columns", "m.timestamp_ns = b''", "1 to 4096 rows"),
    ("columns", "m.schema.names.append('loss')", "each name once"),
    ("columns", "m.first_sequence = 2**64 - 1", "room for 2 rows"),
    ("columns", "m.level = 99", "level"),
    ("schema", "m.names.append('lr')", "each name once"),
    ("state", "m.packet_id = 'é' * 33", "packet_id is .* at most 64 bytes, not 66"),
    ("state", "m.source_subsystem = 'x' * 65", "source_subsystem is .* at most 64 bytes, not 65"),
    ("state", "m.training_run_id = 'é' * 128", "training_run_id is .* at most 255 bytes, not 256"),
    ("state", "m.experiment_name = 'x' * 256", "experiment_name is .* at most 255 bytes, not 256"),
    ("state", "m.training_metrics.update({str(n): 0 for n in range(1025)})", "at most 1024"),
    ("state", "m.training_metrics[''] = 0", "a name in training_metrics"),
    ("state", "m.seed_states.add()", "seed_id"),
    ("report", "m.outcome = 0", "outcome"),
]


@pytest.mark.parametrize("name", GOOD)
def test_what_makes_sense_passes(name: str) -> None:
    validate(GOOD[name])


@pytest.mark.parametrize("name", GOOD)
def test_every_message_says_version_one(name: str) -> None:
    message = type(GOOD[name])()
    message.CopyFrom(GOOD[name])
    message.version = 2  # type: ignore[attr-defined]

    with pytest.raises(RefusedError) as refused:
        validate(message)

    assert refused.value.reason == pb.ReasonCode.REASON_WRONG_VERSION


@pytest.mark.parametrize(("name", "change", "said"), BAD)
def test_what_makes_no_sense_is_refused_and_named(name: str, change: str, said: str) -> None:
    message = type(GOOD[name])()
    message.CopyFrom(GOOD[name])
    exec(change, {"m": message, "packet": packet})

    with pytest.raises(RefusedError, match=said) as refused:
        validate(message)

    assert refused.value.reason == pb.ReasonCode.REASON_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("name", "change", "shown"),
    [
        ("commit", "m.commands[0].stream = 'x' * 65_536", r"stream is 'x{63}\.\.\.; expected commands or optimizer"),
        ("proposal", "m.roster.extend(['w' * 64] * 1000)", r"roster is \['worker-0', 'worker-1', 'w+\.\.\.; expected"),
        ("adjust", "m.optimizer_adjustment.optimizer_id = '\x1b[2J\\n' * 9000", r"optimizer_id is '\\x1b\[2J\\n\\x1b"),
    ],
)
def test_a_refusal_names_no_more_of_a_value_than_a_line_holds(name: str, change: str, shown: str) -> None:
    message = type(GOOD[name])()
    message.CopyFrom(GOOD[name])
    exec(change, {"m": message})

    with pytest.raises(RefusedError, match=shown) as refused:
        validate(message)

    assert len(str(refused.value)) < 200


def test_a_packet_inside_a_frame_says_its_version_too() -> None:
    message = pb.TelemetryFrame(version=1, source="w", packets=[pb.TelemetryPacket(version=3, sequence=1)])

    with pytest.raises(RefusedError, match=r"TelemetryPacket\.version is 3; expected 1"):
        validate(message)


def test_a_measured_nan_is_news_and_not_an_error() -> None:
    validate(pb.TelemetryPacket(version=1, sequence=1, values={"loss": math.nan, "norm": math.inf}))


def test_every_kind_has_one_number_one_domain_and_a_rule() -> None:
    for kind in (101, 201, 301, 401, 402, 403, 501, 502, 601, 602, 603, 604, 701, 801, 901, 902, 1001):
        message_type = type_of(kind)
        assert kind_of(message_type) == kind
        assert domain_of(message_type) is Domain(kind // 100)
        with pytest.raises(RefusedError, match="version is 0"):
            validate(message_type())


def test_what_does_not_travel_has_no_rule() -> None:
    with pytest.raises(RefusedError, match="ToTrainer does not travel under a seal"):
        validate(pb.ToTrainer())


def test_an_opener_refuses_what_is_out_of_range_under_a_good_seal() -> None:
    nonsense = command()
    nonsense.seed_command.operation = pb.SeedOperation.SEED_OP_UNKNOWN
    old = command()
    old.version = 2

    assert refusal(worker_opener(), controller().seal(nonsense)) == "REASON_OUT_OF_RANGE"
    assert refusal(worker_opener(), controller().seal(old)) == "REASON_WRONG_VERSION"
    assert worker_opener().open(controller().seal(command()), ENTRY, NOW_MS).message == command()
