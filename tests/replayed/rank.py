"""The trainer's end of a link whose other end, the rules of a runtime, is in the same process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import cast

from esper.bus import names
from esper.bus.connect import Redis, ServerClock
from esper.bus.group.delivery import FIELD, Delivery
from esper.bus.group.settlement import Settlement
from esper.errors import EvictedError, TrainingError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Sealer
from esper.runtime.beside.following import Following
from esper.runtime.beside.heartbeat_repeater import repeated
from esper.runtime.beside.orders import Orders
from esper.runtime.beside.recall import Recaller
from esper.runtime.serving.clock_skew import DatedOpener
from esper.session.replay_link import all_stored
from tests.replayed.keys import Keys
from tests.replayed.leader import Leader
from tests.replayed.streams import Streams
from tests.replayed.view import View
from tests.simulation.arrivals import at_once
from tests.town.log import entry_id, number

FOLLOWED = {"commands": Domain.COMMAND, "optimizer": Domain.OPTIMIZER, "decisions": Domain.DECISION}
STEP_MS, WAIT_MS = 20, 250
BEAT_NS = 500_000_000


class Killed(BaseException):
    """The trainer's process is gone, in the middle of whatever it did."""


class Clock(ServerClock):
    """That of the streams."""

    def __init__(self, streams: Streams) -> None:
        super().__init__()
        self._streams, self._num_set = streams, len(streams.was_ms)

    def now_ms(self) -> int:
        return self._streams.now_ms()

    def has_been_at(self, at_ms: int) -> bool:
        return at_ms <= max([self.now_ms(), *self._streams.was_ms[self._num_set :]])


class Rank:
    """One trainer process with the runtimes beside it. `live` is called whenever it looks, and may kill anybody."""

    doorbell = b"\1"

    def __init__(
        self,
        streams: Streams,
        leader: Leader,
        keys: Keys,
        guards: Mapping[str, ReplayGuard],
        name: str,
        world_size: int,
    ) -> None:
        self.streams, self.leader, self._guards, self.run_id = streams, leader, guards, keys.run_id
        self.name, self._is_replica = name, world_size == 1
        self._keyring = keys.of(Role.WORKER)
        self._last: pb.Heartbeat | None = None
        self._heard_ns = self._settled_ns = 0
        self.alive, self.num_starts, self.decided, self._step = False, 0, "", -1
        self.portray: Callable[[], pb.Heartbeat] | None = None
        self.look: Callable[[], View] = View
        self.live: Callable[[], object] = lambda: None
        self.dice = Random(0)
        self.start()

    # -- what the session calls --------------------------------------------------------------------------------------

    def start(self) -> None:
        """A runtime, which finds what the one before it has left."""
        self.num_starts += 1
        self.alive, self._said, self._has_begun, self._held = True, list[pb.ToTrainer](), False, dict[str, set[int]]()
        self._clock, log = Clock(self.streams), self.streams.logs["decisions"]
        if self.num_starts == 1:
            self.streams.began[self.name] = self.streams.newest("decisions")
        self.decided = self.streams.began.get(self.name, "0-0")
        oldest, read = min(log.pending.get(self.name, {}), default=0), log.read[self.name]
        again = {name: self._opener(domain, None) for name, domain in FOLLOWED.items()}
        self._recaller = Recaller(cast(Redis, self.streams), self.run_id, self.name, again, self._clock)
        orders = Orders(past=entry_order(self.decided), worker=self.name)
        at_once(self._recaller.take_up(orders, entry_id(oldest) if oldest else "", entry_id(read) if read else ""))
        openers = {name: self._opener(domain, self._guards[name]) for name, domain in FOLLOWED.items()}
        self._sealer = Sealer(self._keyring, Role.WORKER, self.name, clock_ns=self.streams.now_ns)
        self._following = Following(
            self.run_id, self.name, openers, self._sealer.seal, self.streams.now_ms, orders, inherits=False
        )
        self._settlement = Settlement()
        self.connect_anew()
        self._said.append(pb.ToTrainer(ready=pb.RuntimeReady(run_id=self.run_id, decided=self.decided)))

    def _opener(self, domain: Domain, guard: ReplayGuard | None) -> DatedOpener:
        return DatedOpener(self._keyring, self._clock, name=self.name, guard=guard, accept=[domain], carries_out=True)

    def connect_anew(self) -> None:
        """To a server that may know less."""
        self._again = {
            name: [at for at in self.streams.left(name, self.name) if at not in self._held.get(name, ())]
            for name in FOLLOWED
        }

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        beat = None if self.portray is None else self.portray()
        step = 0 if beat is None else beat.step
        if timeout_s or step != self._step:  # else by the clock on the wall, which would make of one seed many runs
            self._step = step
            self.streams.pass_ms(WAIT_MS if timeout_s else STEP_MS)
            self.live()
            if self.alive:
                self._turn(beat)
        if not self.alive:
            return []
        said, self._said = self._said, []
        return said

    def _turn(self, beat: pb.Heartbeat | None) -> None:
        if beat is not None:
            self._hear_beat(beat)
        self.leader.turn()
        if self._has_begun:
            self._read_all()

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        what = message.WhichOneof("message")
        if what in ("vote", "applied", "record", "recall"):
            self.live()
        if not self.alive:
            return
        match what:
            case "heartbeat" if message.heartbeat.barrier_due and not message.heartbeat.busy:
                self._hear_beat(message.heartbeat)
            case "vote":
                self.leader.hear(message.vote)
            case "applied":
                self._following.applied(message.applied, self._settlement)
                if self.dice.random() < 0.7:
                    self._settle()
            case "record":
                self._record(message.record)
            case "recall":
                self._recall(message.recall)
            case "begin":
                if not message.begin.windows:
                    self._following.begin(message.begin.rounds)
                    self._has_begun = True
            case "statement":
                stored = pb.StatementStored(number=message.statement.number)
                self._said.append(pb.ToTrainer(statement_stored=stored))
            case "farewell":
                self._settle()
                self._hear_beat(message.farewell)
                self._said.append(pb.ToTrainer(report_stored=pb.ReportStored()))

    def rows_lane_free(self) -> bool:
        return True

    def send_rows(self, message: pb.ToRuntime) -> None:
        self._said.append(all_stored(message.rows))

    def close(self, timeout_s: float = 5.0) -> None:
        self.alive = False

    # -- what its runtime does ---------------------------------------------------------------------------------------

    def _hear_beat(self, beat: pb.Heartbeat) -> None:
        self._following.orders.stamp(beat)
        self._settle()
        self._last, self._heard_ns = beat, self.streams.passed_ns
        self.leader.hear(beat)

    def pulse(self) -> None:
        """Say for the trainer that it lives, where that has said nothing for a while."""
        if self.alive and self._last is not None and self.streams.passed_ns - self._heard_ns >= BEAT_NS:
            self._heard_ns = self.streams.passed_ns
            self.leader.hear(repeated(self._last))

    def settle_in_time(self) -> None:
        """It keeps nothing back for longer than a beat, whatever its trainer does."""
        if self.alive and self.streams.passed_ns - self._settled_ns >= BEAT_NS:
            self._settle()

    def _record(self, record: pb.RunRecord) -> None:
        self._following.orders.incarnation = record.incarnation
        self._following.inherits |= self._is_replica and record.began.resumed
        if record.HasField("began"):
            record.began.decisions_after = "{}-{}".format(*self._following.orders.past)
        self.streams.add("receipts", self._sealer.seal(record))

    def _recall(self, asked: pb.Recall) -> None:
        self._following.inherits = self._is_replica
        for order in at_once(self._recaller.recall(asked, entry_order(self.decided))):
            self._said.append(pb.ToTrainer(recalled=pb.Recalled(orders=[order])))
        self._said.append(pb.ToTrainer(recalled=pb.Recalled(is_last=True)))

    def _read_all(self) -> None:
        for name in self.dice.sample([*FOLLOWED], 3):
            while (delivery := self._next(name)) is not None:
                settlement = Settlement()
                self._hear(self._following.read(name, delivery, settlement), settlement)
        for ref in self._following.orders.awaited():
            sealed = self.streams.logs[ref.stream].entries.get(number(ref.entry_id))
            settlement = Settlement()
            self._hear(self._following.look_up(ref, sealed, settlement), settlement)

    def _next(self, name: str) -> Delivery | None:
        log = self.streams.logs[name]
        attempts, at = None, None
        while self._again[name] and attempts is None:
            at = self._again[name].pop(0)
            attempts = log.again(self.name, at)
        if attempts is None:
            at, attempts = log.take(self.name), 1
        if at is None:
            return None
        self._held.setdefault(name, set()).add(at)
        return Delivery(names.key(self.run_id, name), self.name, entry_id(at), log.entries[at], attempts, self.name)

    def _hear(self, messages: list[pb.ToTrainer], settlement: Settlement) -> None:
        self._said += messages
        self._settled(settlement)

    def _settle(self) -> None:
        settlement, self._settlement = self._settlement, Settlement()
        self._settled_ns = self.streams.passed_ns
        self._settled(settlement)

    def _settled(self, settlement: Settlement) -> None:
        for write in settlement.writes:
            self.streams.add(write.stream.rpartition(":")[2], write.fields[FIELD])
        for (stream, _, _), ids in settlement.acks.items():
            name = stream.rpartition(":")[2]
            for each in ids:
                self._held.get(name, set()).discard(number(each))
                self.streams.logs[name].ack(self.name, number(each))


ENDS = (Killed, EvictedError, TrainingError)
"""What ends a trainer's process where it stands."""
