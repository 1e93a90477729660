"""Workers that share a group: each message must take effect once, in Redis, together with its acknowledgement."""

from __future__ import annotations

from collections.abc import Sequence

from esper.bus.group.consumer import Consumer, Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.pending import Source
from esper.bus.group.settlement import RepeatedError, Settlement, reject_spent
from esper.bus.group.settling import recall
from esper.bus.protocol import Steps
from esper.errors import RefusedError, StaleLeaseError
from esper.leyline.kinds import Domain
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened, Opener
from esper.runtime.serving.delivery_handler import DeliveryHandler, Repeats
from esper.runtime.serving.refusals import Refusals
from tests.simulation.hands import Hands, key_of
from tests.simulation.keys import COORDINATOR
from tests.simulation.record import EFFECTS, JOBS, RUN
from tests.simulation.world import Life, PoisonedError

RECLAIM_AFTER_MS = 3_000
WINDOWS = f"esper:{{{RUN}}}:windows"
VERSION = "version"
GROUP = "workers"


class Worker:
    """Knows what took effect by windows that all of the group share in Redis: as an aggregator, with a version."""

    guarded = True
    consumer_type: type[Consumer] = Consumer

    def live(self, life: Life) -> Steps[None]:
        hands = self.hands(life)
        yield from self.load(hands)
        yield from hands.consumer.open()
        while True:
            batch = yield from hands.consumer.next_batch()
            ahead: list[Delivery] = []
            if batch and hands.consumer.full and batch[-1].attempts == 1:
                ahead = yield from hands.consumer.ahead()
            if (yield from self.serve(hands, batch)) and ahead:
                yield from self.serve(hands, ahead)
            life.world.record.measure("held", len(hands.consumer.pending._held))
            if batch and not life.world.calm and life.world.dice.random() < 0.01:
                yield from self.leave(hands)
                return

    def hands(self, life: Life) -> Hands:
        source = Source(JOBS, GROUP, self.name_of(life))
        pace = Pace(life.world.dice.choice([2, 4, 16]), 500, RECLAIM_AFTER_MS)
        guard = ReplayGuard()
        opener = Opener(COORDINATOR, guard=guard if self.guarded else None, accept={Domain.HEARTBEAT})
        return Hands(life, self.consumer_type(source, pace, life.surroundings), guard, opener)

    def name_of(self, life: Life) -> str:
        return life.consumer

    def load(self, hands: Hands) -> Steps[None]:
        fields = yield from recall(WINDOWS, hands.retry_policy)
        hands.version = fields.pop(VERSION.encode(), None)
        hands.guard.load({name.decode(): value for name, value in fields.items()})

    def serve(self, hands: Hands, batch: Sequence[Delivery]) -> Steps[bool]:
        """Settle a batch. False: a lease is lost, and everything that is pending comes again."""
        repeats: Repeats = set()
        while batch:
            try:
                yield from self.commit(hands, batch, self.answered(hands, batch, repeats))
                hands.consumer.settled(batch)
                return True
            except RepeatedError as error:
                repeats |= error.messages
            except StaleLeaseError as error:
                yield from self.load(hands)
                if error.stream != WINDOWS:
                    hands.consumer.rewind()
                    return False
        return True

    def commit(self, hands: Hands, batch: Sequence[Delivery], settlement: Settlement) -> Steps[None]:
        yield from hands.settle(settlement)

    def answered(self, hands: Hands, batch: Sequence[Delivery], repeats: Repeats) -> Settlement:
        settlement = Settlement()
        for delivery in batch:
            self.take(hands, settlement, delivery)
        if changed := hands.guard.changed():
            settlement.expect(WINDOWS, VERSION, hands.version)
            # Not a count: a server that fell back would come to the same number again, with other windows.
            hands.version = f"{hands.life.world.dice.getrandbits(64):016x}".encode()
            settlement.put(WINDOWS, {**changed, VERSION: hands.version})
        return settlement

    def take(self, hands: Hands, settlement: Settlement, delivery: Delivery) -> None:
        if delivery.spent:
            reject_spent(settlement, delivery)
            return
        try:
            opened = self.read(hands, delivery)
        except RefusedError as error:
            settlement.reject(delivery, error)
            return
        if not opened.redelivered:
            for stream, text in self.handle(hands, opened):
                settlement.write(stream, text)
        settlement.ack(delivery)

    def read(self, hands: Hands, delivery: Delivery) -> Opened:
        return hands.opener.open(delivery.body, delivery.entry_id, hands.life.world.server_ms())

    def handle(self, hands: Hands, opened: Opened) -> list[tuple[str, bytes]]:
        record, key = hands.life.world.record, key_of(opened)
        if key in record.sent and record.sent[key].poison:
            record.handled[GROUP, opened.entry_id] += 1
            raise PoisonedError(key)
        return [(EFFECTS, f"{key}@{opened.entry_id}".encode())]

    def leave(self, hands: Hands) -> Steps[None]:
        """As SIGTERM asks: hand back what is pending; another incarnation comes."""
        life = hands.life
        yield from hands.consumer.release([])
        life.world.after(1.0, lambda: life.world.start(life.name, life.body, life.number + 1))


class HandlingWorker(Worker):
    """Answers as esper.runtime.serving.loop does: one bit for each message, checked where the batch is settled."""

    guarded = False
    once = True

    def load(self, hands: Hands) -> Steps[None]:
        yield from ()

    def answered(self, hands: Hands, batch: Sequence[Delivery], repeats: Repeats) -> Settlement:
        handler = DeliveryHandler(
            lambda delivery: self.read(hands, delivery),
            lambda opened: self.handle(hands, opened),
            Refusals(hands.life.surroundings.clock),
            once=self.once,
        )
        return handler.answered(batch, repeats)
