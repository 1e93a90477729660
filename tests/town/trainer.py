"""One trainer with its runtime: the real rules of both, without processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from google.protobuf.message import Message

from esper.bus.connect import Redis
from esper.bus.group.delivery import Delivery
from esper.bus.group.settlement import Settlement
from esper.bus.names import key
from esper.errors import TrainingError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Sealer
from esper.runtime.beside.following import Following
from esper.runtime.beside.orders import Orders
from esper.runtime.beside.recall import Recaller
from esper.runtime.serving.clock_skew import DatedOpener
from esper.tolaria.boundary import Boundary
from tests.rounds import heartbeat, vote
from tests.simulation.arrivals import at_once
from tests.town.knowing import RUN, Clock, S, Windows, keyring
from tests.town.log import Record, entry_id, number
from tests.town.seat import Seat

FOLLOWED = {"commands": Domain.COMMAND, "optimizer": Domain.OPTIMIZER, "decisions": Domain.DECISION}
PATIENCE_NS = 30 * S
"""For a decision on what was voted for."""


@dataclass
class Trainer:
    """EvictedError where it is told to end, TrainingError where it can't go on."""

    seat: Seat
    number: int
    incarnation: int
    world_size: int
    step: int
    hangs: bool = False
    has_left: bool = False
    waits_since_ns: int | None = None
    applied: list[tuple[int, int, tuple[str, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.boundary = Boundary(is_in_group=self.world_size > 1)
        self.decided = entry_id(max(self.seat.logs["decisions"].entries, default=0))  # and tells each of its runtimes
        self.start_runtime()

    def start_runtime(self) -> None:
        """Anew: it knows what is on record, and gets again what is pending."""
        self.orders = Orders(past=entry_order(self.decided), worker=self.name, incarnation=self.incarnation)
        self.orders.round_applied = self.boundary.round_applied
        self.clock = Clock(self.seat)
        self.windows = Windows(FOLLOWED, self.seat.stored.get(self.name, {}))
        self.sealer = Sealer(keyring(Role.WORKER), Role.WORKER, self.name, clock_ns=self.clock.now_ns)
        openers = self._openers(self.windows.guards)
        self.following = Following(RUN, self.name, openers, self.sealer.seal, self.clock.now_ms, self.orders)
        self._take_up()
        self.again = {name: list(self.seat.logs[name].left(self.name)) for name in FOLLOWED}
        self.held: dict[str, set[int]] = {name: set() for name in FOLLOWED}

    def _take_up(self) -> None:
        log = self.seat.logs["decisions"]
        oldest, read = min(log.pending.get(self.name, {}), default=0), log.read[self.name]
        recaller = Recaller(cast(Redis, Record(log)), RUN, self.name, self._openers({}), self.clock)
        at_once(recaller.take_up(self.orders, entry_id(oldest) if oldest else "", entry_id(read) if read else ""))

    def _openers(self, guards: Mapping[str, ReplayGuard]) -> dict[str, DatedOpener]:
        keys = keyring(Role.WORKER)
        return {
            log: DatedOpener(keys, self.clock, name=self.name, guard=guards.get(log), accept=[domain], carries_out=True)
            for log, domain in FOLLOWED.items()
        }

    @property
    def name(self) -> str:
        return f"worker-{self.number}"

    @property
    def trains(self) -> bool:
        return not (self.hangs or self.has_left)

    def beat(self, *, due: bool = False) -> None:
        said = heartbeat(
            self.number,
            self.step,
            world_size=self.world_size,
            due=due,
            incarnation=self.incarnation,
            applied=self.boundary.round_applied,
        )
        said.rank %= self.world_size
        if self.has_left:
            said.report.CopyFrom(pb.WorkerReport(worker=self.name))
        said.round_met = self.boundary.round_met
        self.orders.stamp(said)
        self.says("heartbeats", said)

    def says(self, log: str, what: Message) -> None:
        self.seat.says(log, self.sealer.seal(what), self.clock)

    def reads(self, log: str) -> bool:
        """The next entry of a log, pending ones first; False: there is none."""
        while self.again[log]:
            at = self.again[log].pop(0)
            if (attempts := self.seat.logs[log].again(self.name, at)) is not None:
                self._is_handed(log, at, attempts)
                return True
        taken = self.seat.logs[log].take(self.name)
        if taken is not None:
            self._is_handed(log, taken, 1)
        return taken is not None

    def _is_handed(self, log: str, at: int, attempts: int) -> None:
        self.held[log].add(at)
        body, settlement = self.seat.logs[log].entries[at], Settlement()
        delivery = Delivery(key(RUN, log), self.name, entry_id(at), body, attempts, self.name)
        refused = Counter(self.following.refusals.counts)
        try:
            said = self.following.read(log, delivery, settlement)
        finally:
            for _, reason in self.following.refusals.counts - refused:
                self.seat.note_refused(reason, body, at, self.clock)
        self._take(said, settlement)

    def begins_anew(self, log: str) -> None:
        """Its group was gone, and is there again."""
        self.again[log], self.held[log] = [], set()

    def connects_anew(self) -> None:
        """To a server that knows less: what is pending there comes again, unless it is in hand."""
        for log in FOLLOWED:
            self.again[log] = [at for at in self.seat.logs[log].left(self.name) if at not in self.held[log]]

    def looks_up(self) -> None:
        """Whether what a commit waits for is on its log. TrainingError: it is not."""
        for ref in self.orders.awaited():
            body, settlement = self.seat.logs[ref.stream].entries.get(number(ref.entry_id)), Settlement()
            self._take(self.following.look_up(ref, body, settlement), settlement)

    def _take(self, said: Sequence[pb.ToTrainer], settlement: Settlement) -> None:
        for message in said:
            self._hear(message)
        self._settle(settlement)

    def _settle(self, settlement: Settlement) -> None:
        """All at once, with what was met."""
        if settlement.empty:
            return
        for (stream, _, _), ids in settlement.acks.items():
            log = stream.rpartition(":")[2]
            for at in map(number, ids):
                self.held[log].discard(at)
                self.seat.logs[log].ack(self.name, at)
        self.seat.stored[self.name] = self.windows.settle()

    def _hear(self, message: pb.ToTrainer) -> None:
        match message.WhichOneof("message"):
            case "proposal":
                if (again := self.boundary.on_proposal(message.proposal)) is not None:
                    self.says("votes", again)
            case "commit":
                if (answer := self.boundary.on_commit(message.commit)) is not None:
                    self._answered(answer)
            case "abort":
                self.boundary.on_abort(message.abort)

    def trains_on(self) -> None:
        """Come to the next boundary, if no promise forbids it."""
        while (order := self.boundary.due(self.step)) is not None:
            ids = tuple(each.ref.command_id for each in order.commands)
            self.applied.append((order.commit.round, self.step, ids))
            receipts = [pb.CommandReceipt(entry_id=each, status=pb.ReceiptStatus.RECEIPT_APPLIED) for each in ids]
            self._answered(self.boundary.applied(order, receipts))
        if (asked := self.boundary.vote_asked()) is not None:
            generation, held = asked.roster_generation, {8: b"a" * 32}
            given = vote(self.number, self.step, number=asked.round, generation=generation, snapshots=held)
            self.boundary.voted(given)
            self.says("votes", given)
        if not self.boundary.must_wait(self.step):
            self.step, self.waits_since_ns = self.step + 1, None
            return
        now_ns = self.seat.passed_ns
        self.waits_since_ns = now_ns if self.waits_since_ns is None else self.waits_since_ns
        if now_ns - self.waits_since_ns > PATIENCE_NS:
            raise TrainingError(self.boundary.overdue(self.step, 30.0))

    def _answered(self, answer: pb.RoundApplied) -> None:
        settlement = Settlement()
        self.following.applied(answer, settlement)
        self._settle(settlement)
