"""One trainer with its runtime: the real rules of both, without processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from esper.bus.connect import Redis
from esper.bus.delivery import FIELD, Delivery
from esper.errors import TrainingError
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened, Opener
from esper.runtime.orders import Orders, Step
from esper.runtime.recall import Recaller
from esper.tolaria.boundary import Boundary
from tests.rounds import header, heartbeat, vote
from tests.simulation.arrivals import Standing, at_once
from tests.town.log import Log
from tests.town.seat import OLD, S, Seat

FOLLOWED = ("commands", "optimizer", "decisions")
PATIENCE_NS = 30 * S
"""For a decision on what was voted for."""


@dataclass
class Record:
    """What a runtime that starts reads of the decisions, beside its group."""

    decisions: Log[Any]

    async def ask(self, words: Sequence[Any]) -> list[Any]:
        """XRANGE and XREVRANGE, with COUNT."""
        verb, _, first, last = words[:4]
        low, high = (first, last) if verb == "XRANGE" else (last, first)
        least = 0 if low == "-" else _number(low.lstrip("(")) + low.startswith("(")
        most = _number(high.lstrip("(")) - high.startswith("(")
        rows = [(at, said) for at, said in self.decisions.entries.items() if least <= at <= most]
        rows = rows if verb == "XRANGE" else rows[::-1]
        return [(f"{at}-0".encode(), [FIELD, said]) for at, said in rows[: words[words.index("COUNT") + 1]]]


class Unsealed:
    """Takes a message as it is."""

    def open(self, message: Any, entry_id: str, now_ms: int) -> Opened:
        return Opened(header(), message, entry_id.encode(), entry_id, False)


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
        self.seat.began[self.name] = max(self.seat.logs["decisions"].entries, default=0)
        self.start_runtime()

    def start_runtime(self) -> None:
        """Anew: it knows what is on record, and gets again what is pending."""
        self.orders = Orders(
            past=(self.seat.began.get(self.name, 0), 0), worker=self.name, incarnation=self.incarnation
        )
        self.orders.round_applied = self.boundary.round_applied
        log = self.seat.logs["decisions"]
        oldest, read = min(log.pending.get(self.name, {}), default=0), log.read[self.name]
        openers = {name: cast(Opener, Unsealed()) for name in FOLLOWED}
        recaller = Recaller(cast(Redis, Record(log)), "town", self.name, openers, Standing())
        at_once(recaller.take_up(self.orders, f"{oldest}-0" if oldest else "", f"{read}-0" if read else ""))
        self.again = {name: list(self.seat.logs[name].left(self.name)) for name in FOLLOWED}
        self.held: dict[str, set[int]] = {name: set() for name in FOLLOWED}

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
        self.seat.add("heartbeats", said)

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
        delivery = Delivery(log, self.name, f"{at}-0", b"", attempts, self.name)
        self._take(self._answer(self.seat.logs[log].entries[at], delivery))

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
            found = self.seat.logs[ref.stream].entries.get(_number(ref.entry_id))
            if found is None:
                self._take(self.orders.on_missing(ref))
            elif isinstance(found, Opened):
                self._take(self.orders.on_found(ref.stream, found))

    def _take(self, step: Step) -> None:
        said, settled = step
        for delivery in settled:
            self._ack(delivery)
        for message in said:
            self._hear(message)

    def _answer(self, what: object, delivery: Delivery) -> Step:
        match what:
            case Opened():
                return self.orders.on_command(delivery.stream, what, delivery)
            case pb.LeaderAnnouncement():
                return self.orders.on_announcement(what, delivery)
            case pb.BarrierProposal() | pb.BarrierCommit() | pb.BarrierAbort() if self.orders.is_past(what, delivery):
                return [], [delivery]
            case pb.BarrierProposal():
                return self.orders.on_proposal(what, delivery)
            case pb.BarrierCommit():
                return self.orders.on_commit(what, delivery)
            case pb.BarrierAbort():
                return self.orders.on_abort(what, delivery)
        said, settled = self.orders.on_refused(delivery.stream, delivery, OLD)
        return said, [delivery, *settled]

    def _hear(self, message: pb.ToTrainer) -> None:
        match message.WhichOneof("message"):
            case "proposal":
                if (again := self.boundary.on_proposal(message.proposal)) is not None:
                    self.seat.add("votes", again)
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
            generation, held = asked.roster_generation, {8: b"a"}
            given = vote(self.number, self.step, number=asked.round, generation=generation, snapshots=held)
            self.boundary.voted(given)
            self.seat.add("votes", given)
        if not self.boundary.must_wait(self.step):
            self.step, self.waits_since_ns = self.step + 1, None
            return
        now_ns = self.seat.passed_ns
        self.waits_since_ns = now_ns if self.waits_since_ns is None else self.waits_since_ns
        if now_ns - self.waits_since_ns > PATIENCE_NS:
            raise TrainingError(self.boundary.overdue(self.step, 30.0))

    def _answered(self, answer: pb.RoundApplied) -> None:
        for delivery in self.orders.on_applied(answer):
            self._ack(delivery)

    def _ack(self, delivery: Delivery) -> None:
        at = _number(delivery.entry_id)
        self.held[delivery.stream].discard(at)
        self.seat.logs[delivery.stream].ack(self.name, at)


def _number(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])
