"""The loop of the runtime beside a trainer: Redis on one side, the trainer's two lanes on the other."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from google.protobuf.message import Message

from esper.bus import names, tail
from esper.bus.connect import ServerClock
from esper.bus.faults import UnavailableError
from esper.bus.group.backlog import Backlog
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.publisher import Publisher
from esper.bus.retry import add_until_answered
from esper.bus.upkeep.floors import encoded, kept_key
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.frames import in_parts
from esper.leyline.seal import Sealer
from esper.runtime.beside.following import Following
from esper.runtime.beside.heartbeat_repeater import BEAT_S, HeartbeatRepeater
from esper.runtime.beside.lanes import Lanes, messages
from esper.runtime.beside.packets import Origin
from esper.runtime.beside.recall import Recaller
from esper.runtime.beside.reporting import Reporting
from esper.runtime.beside.statements import Statements
from esper.runtime.ending import end, orphaned
from esper.runtime.serving.windows import Windows

PATIENCE_S = 30.0
"""How long Redis may be away before this process ends, to be started anew: half of what a seal stays fresh for."""
LOOK_UP_S = 1.0
"""For as long a commit waits before what it names is looked for on the logs, and again between two looks."""
NUM_LOOKS = 5
"""That find nothing, before an entry counts as gone: a server that has just been replaced may know of less."""
LAST_READ_S = 1.0
"""For a read that is under way when this process ends: the server answers every half second."""
MOST_UNSETTLED = 32
"""Rounds carried out and not acknowledged: a trainer answers repeats of the newest 64 from memory."""
FORGET_EVERY_S = 60.0
FORGET_AFTER_MS = 300_000

log = structlog.get_logger()


@dataclass
class Beside:
    """Carries commands and decisions to one trainer, and its votes, receipts and measurements to Redis.

    Holds no training state, and may be killed at any moment: what it makes of the logs is `following`'s.
    """

    run_id: str
    origin: Origin
    lanes: Lanes
    logs: dict[str, Inbox]  # "commands", "optimizer", "decisions"
    following: Following
    windows: Windows
    outbox: Outbox
    publisher: Publisher
    sealer: Sealer
    clock: ServerClock
    patience_s: float = PATIENCE_S
    look_up_s: float = LOOK_UP_S
    repeater: HeartbeatRepeater | None = None  # given: it beats for a trainer that is away from its boundary
    recaller: Recaller | None = None  # given: nothing is read before the trainer says that it begins
    trainer: int = field(default_factory=os.getppid)  # its process
    is_replica: bool = False  # its trainer is in no process group
    decided: str = ""
    """Entry of the newest decision when the trainer began."""
    _begun: asyncio.Event = field(default_factory=asyncio.Event)
    _forget_at_s: float = 0.0
    _applied: Settlement = field(default_factory=Settlement)
    _num_applied: int = 0
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _is_ending: bool = False

    async def serve(self, stopping: asyncio.Event) -> None:
        """Run until the trainer hangs up or `stopping` is set; raises the first error of any part."""
        if self.recaller is None:
            self._begun.set()
        self.lanes.tell(pb.ToTrainer(ready=pb.RuntimeReady(run_id=self.run_id, decided=self.decided)))
        readers = [asyncio.create_task(self._follow_log(name)) for name in self.logs]
        lanes = [asyncio.create_task(self._hear_trainer()), asyncio.create_task(self._carry_rows())]
        others: list[asyncio.Task[Any]] = [
            asyncio.create_task(stopping.wait()),
            asyncio.create_task(orphaned(self.trainer)),
        ]
        others.append(asyncio.create_task(self._look_up_awaited()))
        if self.repeater is not None:
            others.append(asyncio.create_task(self._beat_on(self.repeater)))
        hung_up = asyncio.gather(*lanes)
        hung_up.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # what ends first is raised
        parts: list[asyncio.Future[Any]] = [*readers, hung_up, *others]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            self._is_ending = True
            for inbox in self.logs.values():
                inbox.stop()
            for event in (self._moved, self._begun):
                event.set()
            await end([*lanes, *others])
            # Each leaves its blocking read by itself; what one that is cancelled was handed stays pending for the next.
            await asyncio.wait(readers, timeout=LAST_READ_S)
            await end(readers)
            for inbox in self.logs.values():
                await inbox.give_up()

    # -- from Redis to the trainer -----------------------------------------------------------------------------------

    async def _follow_log(self, name: str) -> None:
        self.logs[name].held_back = True  # while the trainer sets up, which may take minutes
        await self._begun.wait()
        self.logs[name].held_back = False
        async for batch in self.logs[name].batches():
            settlement, said = Settlement(), list[pb.ToTrainer]()
            try:
                for delivery in batch:
                    said += self._with_windows(self.following.read(name, delivery, settlement))
            finally:  # also what was said before the one that ends this process
                self.lanes.tell(*said)
            await self._settle(settlement)
            self._moved.set()
            while not (self.following.orders.has_room(name) or self._is_ending):
                self.logs[name].held_back = True
                self._moved.clear()
                await self._moved.wait()
            self.logs[name].held_back = False

    async def _look_up_awaited(self) -> None:
        """Look on the logs for what a commit waits for and nobody hands over."""
        last, misses = list[pb.CommittedCommand](), Counter[tuple[str, str]]()
        while True:
            await asyncio.sleep(self.look_up_s)
            if last != self.following.orders.awaited():
                misses.clear()
            for ref in last if last == self.following.orders.awaited() else ():
                await self._look_up(ref, misses)
            last = self.following.orders.awaited()

    async def _look_up(self, ref: pb.CommittedCommand, misses: Counter[tuple[str, str]]) -> None:
        try:
            body = await tail.body_at(self.outbox.redis, names.key(self.run_id, ref.stream), ref.entry_id)
        except UnavailableError:
            return  # it is looked for again
        misses[ref.stream, ref.entry_id] += body is None
        if body is None and misses[ref.stream, ref.entry_id] < NUM_LOOKS:
            return
        settlement = Settlement()
        self.lanes.tell(*self._with_windows(self.following.look_up(ref, body, settlement)))
        await self._settle(settlement)
        self._moved.set()

    def _with_windows(self, messages: list[pb.ToTrainer]) -> Iterator[pb.ToTrainer]:
        for message in messages:
            if message.WhichOneof("message") in ("commit", "recalled"):
                # first: whoever keeps the state that it leads to keeps this with it
                for fields in in_parts(self.windows.tell()):
                    yield pb.ToTrainer(windows=pb.WindowsChanged(fields=fields))
            yield message

    # -- from the trainer to Redis -----------------------------------------------------------------------------------

    async def _hear_trainer(self) -> None:
        async for message in messages(self.lanes.control):
            match message.WhichOneof("message"):
                case "heartbeat":
                    await self._pass_on(message.heartbeat)
                case "vote":
                    await self._publish("votes", message.vote)
                case "applied":
                    await self._note_applied(message.applied)
                case "record":
                    await self._put_on_record(message.record)
                case "recall":
                    await self._recall(message.recall)
                case "begin":
                    self._begin(message.begin)
                case "kept":
                    await self._note_kept(message.kept)
                case "statement":
                    await self._store(message.statement)
                case "farewell":
                    await self._say_farewell(message.farewell)

    async def _pass_on(self, heartbeat: pb.Heartbeat) -> None:
        self.following.orders.stamp(heartbeat)
        if self.repeater is not None:
            self.repeater.heard(heartbeat)
        await self._settle_applied()
        if os.getppid() == self.trainer:  # who takes a dead one's place would be refused beside it
            await self._publish("heartbeats", heartbeat, keep=False)

    async def _note_applied(self, applied: pb.RoundApplied) -> None:
        self._num_applied += self.following.applied(applied, self._applied)
        if self._applied.writes or self._num_applied >= MOST_UNSETTLED:
            await self._settle_applied()

    async def _store(self, statement: pb.Statement) -> None:
        await self._statements.store(statement)
        self.lanes.tell(pb.ToTrainer(statement_stored=pb.StatementStored(number=statement.number)))

    async def _say_farewell(self, heartbeat: pb.Heartbeat) -> None:
        """The trainer waits until its last heartbeat, with its report, is on the stream."""
        await self._settle_applied()
        await self._publish("heartbeats", heartbeat)
        self.lanes.tell(pb.ToTrainer(report_stored=pb.ReportStored()))
        await self.lanes.to_trainer.drain()

    async def _beat_on(self, repeater: HeartbeatRepeater) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            if (beat := repeater.again()) is not None:
                await self._publish("heartbeats", beat, keep=False)

    async def _recall(self, asked: pb.Recall) -> None:
        self.following.inherits = self.is_replica  # who asks for this resumes
        found = [] if self.recaller is None else await self.recaller.recall(asked, entry_order(self.decided))
        for order in found:
            self.lanes.tell(pb.ToTrainer(recalled=pb.Recalled(orders=[order])))
        self.lanes.tell(pb.ToTrainer(recalled=pb.Recalled(is_last=True)))

    async def _note_kept(self, kept: pb.Kept) -> None:
        """The logs are needed from there on, as far as this rank's checkpoints go."""
        settlement = Settlement()
        settlement.put(kept_key(self.run_id), {self.origin.source: encoded(kept.positions)})
        await self._settle(settlement)

    def _begin(self, begin: pb.Begin) -> None:
        if begin.windows:
            self.windows.absorb(begin.windows)
            return  # more may follow; the last has none
        self.following.begin(begin.rounds)
        self._begun.set()

    async def _settle_applied(self) -> None:
        """In one call. Nobody waits for a round without receipts: many go together, and no vote is behind them."""
        settlement, self._applied, self._num_applied = self._applied, Settlement(), 0
        await self._settle(settlement)

    @property
    def _statements(self) -> Statements:
        return Statements(self.run_id, self.origin.source, self.outbox, self.sealer)

    async def _put_on_record(self, record: pb.RunRecord) -> None:
        """With what the trainer does not know: after which decision it began, and what is stored already."""
        self.following.orders.incarnation = record.incarnation
        self.following.inherits |= self.is_replica and record.began.resumed
        if record.HasField("judged"):
            return await self._statements.store_judged(record)
        if record.HasField("began"):
            record.began.decisions_after = "{}-{}".format(*self.following.orders.past)
        await self._publish("receipts", record)

    async def _carry_rows(self) -> None:
        stream = names.region_key(self.run_id, self.origin.region, "telemetry")
        reporting = Reporting(
            self.origin,
            self.sealer,
            Backlog(self.outbox.redis, stream, "regional"),
            add=partial(self._add, stream),
            warn=partial(self._publish, "emergency"),
            tell=self.lanes.tell,
        )
        await reporting.serve(messages(self.lanes.rows))

    async def _publish(self, stream: str, message: Message, *, keep: bool = True) -> None:
        sealed = self.sealer.seal(message)
        if keep:
            await self._add(names.key(self.run_id, stream), sealed)
            return
        try:
            await self.publisher.add(names.key(self.run_id, stream), sealed)
        except UnavailableError:
            return  # the next one says more

    async def _add(self, key: str, sealed: bytes) -> None:
        """Add the same bytes until Redis has them, so that a repeat is recognised by its sequence.

        Redis away for long ends the process, with the last error: the trainer keeps what is not stored and has it
        sealed anew by the next runtime. A runtime whose trainer is gone tries for three seconds: nobody was told
        that what it has left is stored.
        """
        await add_until_answered(self.publisher.add, key, sealed, self.patience_s)

    async def _settle(self, settlement: Settlement) -> None:
        """Settle all but what this worker's groups no longer hold.

        Nobody takes an entry over from a group of one's own: a lease is lost only where the group was, with its
        history. What was carried out is to be told all the same, and what was seen is to be remembered.
        """
        if not settlement.empty:
            self._forget()
            await self.windows.insist(settlement)

    def _forget(self) -> None:
        """Every minute: windows of producers long gone, by stream time and never above an entry in hand."""
        if time.monotonic() < self._forget_at_s:
            return
        self._forget_at_s = time.monotonic() + FORGET_EVERY_S
        newest = self.clock.now_ms() - FORGET_AFTER_MS
        for guard in self.windows.guards.values():
            guard.forget(min(self.following.orders.oldest_ms(newest), newest))


def windows_key(run_id: str, worker: str) -> str:
    """Hash of what a worker has seen, kept with its acknowledgements."""
    return names.key(run_id, f"windows:worker/{worker}")
