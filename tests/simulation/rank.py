"""A rank: sees every order, in a group of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from esper.bus.group.consumer import Consumer, Pace
from esper.bus.group.delivery import Delivery
from esper.bus.group.pending import Source
from esper.bus.group.settlement import Settlement, reject_spent
from esper.bus.protocol import Steps
from esper.errors import RefusedError, StaleLeaseError
from esper.leyline.kinds import Domain
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened, Opener
from tests.simulation.hands import Hands, key_of
from tests.simulation.keys import WORKER
from tests.simulation.record import ORDERS
from tests.simulation.world import Life


@dataclass(slots=True)
class Rank:
    """Its effects, and what it has seen, are written to a disk of its own in one go, and outlive its crashes."""

    seen: dict[str, bytes] = field(default_factory=dict)

    def live(self, life: Life) -> Steps[None]:
        guard = ReplayGuard()
        guard.load(self.seen)
        opener = Opener(WORKER, name=life.name, guard=guard, accept={Domain.COMMAND})
        source = Source(ORDERS, life.name, life.name)
        consumer = Consumer(source, Pace(life.world.dice.choice([4, 16]), 500, None), life.surroundings)
        hands = Hands(life, consumer, guard, opener)
        yield from consumer.open()
        while True:
            batch = yield from consumer.next_batch()
            settlement = Settlement()
            for delivery in batch:
                self.take(hands, settlement, delivery)
            try:
                yield from hands.settle(settlement)
                consumer.settled(batch)
            except StaleLeaseError:
                consumer.rewind()

    def take(self, hands: Hands, settlement: Settlement, delivery: Delivery) -> None:
        """Carry out what is new; effect and window are one write of the rank's own."""
        life = hands.life
        if delivery.spent:
            reject_spent(settlement, delivery)
            return
        try:
            opened = hands.opener.open(delivery.body, delivery.entry_id, life.world.server_ms())
        except RefusedError as error:
            settlement.reject(delivery, error)
            return
        if self.is_new(opened):
            effect = f"{key_of(opened)}@{delivery.entry_id}".encode()
            life.world.record.local.setdefault(life.name, []).append(effect)
            for name, value in hands.guard.changed().items():
                self.seen.pop(name, None) if not value else self.seen.update({name: value})
        settlement.ack(delivery)

    def is_new(self, opened: Opened) -> bool:
        return not opened.redelivered
