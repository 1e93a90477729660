"""One trainer with its runtime: the real rules of both, without processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from esper.bus.delivery import Delivery
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.runtime.orders import Orders, Step
from esper.tolaria.boundary import Boundary
from tests.rounds import heartbeat, vote
from tests.town.seat import OLD, Seat

FOLLOWED = ("commands", "optimizer", "decisions")


@dataclass
class Trainer:
    """EvictedError where it is told to end, TrainingError where it can't go on."""

    seat: Seat
    number: int
    incarnation: int
    world_size: int
    step: int
    orders: Orders
    boundary: Boundary = field(default_factory=Boundary)
    hangs: bool = False
    has_left: bool = False
    applied: list[tuple[int, int]] = field(default_factory=list)

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
        self.seat.add("heartbeats", said)

    def reads(self, log: str) -> bool:
        """The next entry of a log; False: there is none."""
        at = self.seat.logs[log].take(self.name)
        if at is not None:
            self.is_handed(log, at)
        return at is not None

    def is_handed(self, log: str, at: int) -> None:
        self._take(self._answer(self.seat.logs[log].entries[at], Delivery(log, self.name, f"{at}-0", b"", 1)))

    def looks_up(self) -> None:
        """Whether what a commit waits for is on its log. TrainingError: it is not."""
        for ref in self.orders.awaited():
            if int(ref.entry_id.partition("-")[0]) not in self.seat.logs[ref.stream].entries:
                self._take(self.orders.on_missing(ref))

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
                self.boundary.on_commit(message.commit)
            case "abort":
                self.boundary.on_abort(message.abort)

    def trains_on(self) -> None:
        """Come to the next boundary, if no promise forbids it."""
        while (order := self.boundary.due(self.step)) is not None:
            self.applied.append((order.commit.round, self.step))
            for delivery in self.orders.on_applied(self.boundary.applied(order, [])):
                self._ack(delivery)
        if (asked := self.boundary.vote_asked()) is not None:
            generation, held = asked.roster_generation, {8: b"a"}
            given = vote(self.number, self.step, number=asked.round, generation=generation, snapshots=held)
            self.boundary.voted(given)
            self.seat.add("votes", given)
        self.step += not self.boundary.must_wait(self.step)

    def _ack(self, delivery: Delivery) -> None:
        self.seat.logs[delivery.stream].ack(self.name, int(delivery.entry_id.partition("-")[0]))
