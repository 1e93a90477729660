"""What a rank tells for good is on its stream once: its state at each epoch's end, and what a seed was worth."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import torch

import esper
from esper.bus import connect, names, tail
from esper.bus.group.outbox import Outbox
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.leyline.validate.messages import validate
from esper.runtime.beside.statements import Statements
from esper.session import Session
from esper.session.statements import StatementQueue
from tests.link_kit import Unanswered
from tests.seed_kit import Host
from tests.session_kit import on_seed, order, train

Op, S = pb.SeedOperation, pb.SeedLifecycleStage


class Recording(Unanswered):
    """The trainer's end of a link that keeps what is said, and answers nothing."""

    def __init__(self) -> None:
        self.said: list[pb.Statement] = []

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        if self.alive and message.HasField("statement"):
            self.said.append(pb.Statement.FromString(message.statement.SerializeToString()))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Recording:
    monkeypatch.delenv("ESPER_RUN", raising=False)
    return Recording()


def attached(host: Host, told: Recording, **options: Any) -> Session:
    """A session that has no runtime, and speaks to the recording in its place."""
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
    run = esper.attach(host, optimizer=optimizer, sites=["body", "head"], required=False, **options)
    run.exchange.link = told
    return run


def test_each_epoch_that_ends_is_told_with_state_hardware_and_seeds(told: Recording) -> None:
    torch.manual_seed(1)
    host = Host()
    run = attached(host, told, steps_per_epoch=3)
    train(run, host, 1)
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"))

    train(run, host, 2)
    run.note(accuracy=0.75, val_loss=0.5, test=20.0)  # an evaluation behind the epoch's last step
    train(run, host, 4)

    first, second = (statement.state for statement in told.said)
    for each in (first, second):
        validate(each)
    assert [(each.current_epoch, each.global_step) for each in (first, second)] == [(1, 3), (2, 6)]
    assert (first.validation_accuracy, first.validation_loss, first.training_metrics["test"]) == (0.75, 0.5, 20.0)
    assert [(seed.seed_id, seed.stage) for seed in first.seed_states] == [("s0", S.SEED_STAGE_GERMINATED)]
    assert (first.source_subsystem, first.training_run_id, first.experiment_name) == (
        *("worker-0", run.run_id),
        run.run_id.rpartition("-")[0] or run.run_id,
    )
    assert first.hardware_context.device_type == "cpu" and first.hardware_context.total_memory_gb > 0.1


def test_a_seed_that_ends_is_told_once(told: Recording) -> None:
    host = Host()
    run = attached(host, told)
    train(run, host, 1)
    for site in ("body", "head"):
        order(run, on_seed(Op.SEED_OP_GERMINATE, site, site=site, blueprint_id="mlp"))
        train(run, host, 1)
    order(run, on_seed(Op.SEED_OP_CULL, "body"))
    train(run, host, 3)
    order(run, on_seed(Op.SEED_OP_CANCEL, "head"))
    train(run, host, 3)

    assert [(each.report.report_id, each.report.outcome) for each in told.said] == [
        ("body/2-4", pb.FieldReportOutcome.FIELD_REPORT_ABORTED),
        ("head/3-7", pb.FieldReportOutcome.FIELD_REPORT_ABORTED),
    ]


def test_what_there_was_no_room_to_keep_is_counted_and_told_once_something_is_stored(told: Recording) -> None:
    host = Host()
    run = attached(host, told, steps_per_epoch=1)
    statements = run.exchange.statements
    assert isinstance(statements, StatementQueue)
    statements.most_kept = 2
    train(run, host, 6)
    counted = (statements.num_dropped, statements.num_waiting)

    told.said.clear()
    statements.say_again()
    statements.stored(4)
    statements.stored(5)
    train(run, host, 1)
    table = run.exchange.rows.table()

    assert counted == (3, 2)
    assert [each.number for each in told.said[:2]] == [4, 5]
    assert table is not None
    dropped = [dict(event.attributes) for event in table.events if event.description == "statements.dropped"]
    assert dropped == [{"num": "3", "in_all": "3"}]


def test_what_is_not_known_to_be_stored_is_said_again_to_the_next_runtime(told: Recording) -> None:
    host = Host()
    run = attached(host, told, steps_per_epoch=1)
    train(run, host, 4)
    statements = run.exchange.statements
    assert statements is not None and [each.number for each in told.said] == [1, 2, 3]

    statements.stored(2)
    told.said.clear()
    told.alive = False
    train(run, host, 1)
    run.exchange.pump()  # as each step does that comes 2 ms after another

    assert (told.num_starts, [each.number for each in told.said]) == (2, [3, 4])
    assert statements.num_waiting == 2


def statement(number: int, *, incarnation: int = 7, report: str = "") -> pb.Statement:
    if report:
        told = pb.FieldReport(
            version=1,
            report_id=report,
            seed_id="s0",
            blueprint_id="lora",
            outcome=pb.FieldReportOutcome.FIELD_REPORT_SUCCESS,
        )
        return pb.Statement(incarnation=incarnation, number=number, report=told)
    state = pb.SystemStatePacket(version=1, packet_id=f"worker-0/{number}", current_epoch=number)
    return pb.Statement(incarnation=incarnation, number=number, state=state)


class Stored:
    """Statements of one worker on a real stream, and a reader of it."""

    def __init__(self, redis: connect.Redis, run_id: str) -> None:
        self.redis, self.run_id, self.master = redis, run_id, MasterKeyring.new(time.time_ns())

    def runtime(self, worker: str = "worker-0") -> Statements:
        """One that was just started."""
        sealer = Sealer(self.master.derive(self.run_id, [Role.WORKER]), Role.WORKER, worker)
        return Statements(self.run_id, worker, Outbox(self.redis), sealer)

    async def judged(self) -> list[tuple[int, int]]:
        """Rounds whose outcomes are on record, by process."""
        keys = self.master.derive(self.run_id, [Role.OBSERVER])
        opener, now_ms = Opener(keys, guard=None, accept={Domain.RECEIPT}), await connect.server_ms(self.redis)
        entries = await tail.last(self.redis, names.key(self.run_id, "receipts"), 100)
        found = [opener.open(sealed, entry_id, now_ms).message for entry_id, sealed in entries]
        return [(each.incarnation, each.judged.round) for each in found if isinstance(each, pb.RunRecord)]

    async def read(self) -> list[str]:
        """Ids, in the order of the stream."""
        keys = self.master.derive(self.run_id, [Role.OBSERVER])
        opener, now_ms = Opener(keys, guard=None, accept={Domain.STATE}), await connect.server_ms(self.redis)
        entries = await tail.last(self.redis, names.key(self.run_id, "state"), 100)
        found = [opener.open(sealed, entry_id, now_ms).message for entry_id, sealed in entries]
        return [each.report_id if isinstance(each, pb.FieldReport) else each.packet_id for each in found]  # type: ignore[attr-defined]


@pytest.fixture
def stored(redis: connect.Redis, run_id: str) -> Stored:
    return Stored(redis, run_id)


async def test_said_again_to_another_runtime_it_is_stored_once(stored: Stored) -> None:
    told = [statement(1), statement(2, report="s0/1-9"), statement(3)]
    for each in told:
        await stored.runtime().store(each)

    for each in [*told, statement(4)]:
        await stored.runtime().store(each)

    assert await stored.read() == ["worker-0/1", "s0/1-9", "worker-0/3", "worker-0/4"]


@pytest.mark.parametrize("junk", [b"junk", b"\xff:\xff", b"7", b"7:" + b"9" * 5_000])
async def test_what_somebody_else_has_put_in_the_place_of_its_number_is_written_over(
    stored: Stored, junk: bytes
) -> None:
    await stored.redis.hset(names.key(stored.run_id, "stated"), "worker/worker-0", junk)

    for each in (statement(1), statement(1)):
        await stored.runtime().store(each)

    assert await stored.read() == ["worker-0/1"]


async def test_a_rounds_outcomes_are_on_record_once_though_each_runtime_is_told_of_the_newest(stored: Stored) -> None:
    told = [
        pb.RunRecord(version=1, worker="worker-0", incarnation=process, world_size=1, judged=pb.RoundJudged(round=each))
        for process, each in ((7, 1), (7, 3), (8, 2))
    ]

    for num in (1, 2, 3):
        for each in told[:num] if num < 3 else told[2:]:
            await stored.runtime().store_judged(each)

    assert await stored.judged() == [(7, 1), (7, 3), (8, 2)]


async def test_a_resumed_trainer_that_comes_to_the_same_end_adds_no_second_report(stored: Stored) -> None:
    await stored.runtime().store(statement(1, report="s0/1-9"))

    async with asyncio.timeout(10):  # told twice, it would be refused and asked again for ever
        for number, report in enumerate(["s0/1-9", "s0/20-30"], 1):
            await stored.runtime().store(statement(number, incarnation=8, report=report))

    assert await stored.read() == ["s0/1-9", "s0/20-30"]


async def test_of_a_seed_that_ends_on_two_replicas_before_the_same_step_each_tells(stored: Stored) -> None:
    for worker in ("north", "south", "north"):
        await stored.runtime(worker).store(statement(1, report="s0/1-9"))

    assert await stored.read() == ["s0/1-9", "s0/1-9"]


async def test_two_runtimes_at_once_store_it_once(stored: Stored) -> None:
    both = [stored.runtime(), stored.runtime()]

    for number in range(1, 6):
        await asyncio.gather(*(each.store(statement(number, report=f"s0/{number}")) for each in both))

    assert await stored.read() == [f"s0/{number}" for number in range(1, 6)]
