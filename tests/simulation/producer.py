"""Who publishes: the same bytes until they are answered, by the bus's own retries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from esper.bus.group.delivery import FIELD
from esper.bus.protocol import Ask, Pause, RetryPolicy, Steps, until_answered
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.simulation.keys import CONTROLLER, WORKER, job, order
from tests.simulation.record import JOBS, ORDERS, Sent
from tests.simulation.world import Life

RETRY_S = 30.0


@dataclass(slots=True)
class Producer:
    """Publishes its messages one after the other. What a crash leaves open is not sent again: nobody waits for it."""

    role: Role
    left: list[int]
    done: bool = False

    def live(self, life: Life) -> Steps[None]:
        world, record = life.world, life.world.record
        keyring, stream, make = (WORKER, JOBS, job) if self.role is Role.WORKER else (CONTROLLER, ORDERS, order)
        sealer = Sealer(
            keyring,
            self.role,
            life.name,
            incarnation=world.dice.getrandbits(64),
            clock_ns=lambda: world.server_ms() * 1_000_000,
        )
        for sequence in count(1):
            if not self.left:
                self.done = True
                return
            sealed = sealer.seal(make(self.left.pop()))
            key = f"{life.name}/{sealer.incarnation:016x}/{sequence}"
            poison = stream == JOBS and world.dice.random() < world.plan.poison
            sent = record.sent[key] = Sent(stream, sealed, world.now_s, poison=poison)
            yield from until_answered(partial(add, stream, sealed), RetryPolicy(life.surroundings, life.name, RETRY_S))
            sent.acknowledged = True
            if world.dice.random() < 0.7:
                yield Pause(world.dice.expovariate(1.0) * world.plan.quiet_at_s / (world.plan.num_messages + 1))


def add(stream: str, sealed: bytes) -> Steps[Any]:
    """Once."""
    return (yield Ask(("XADD", stream, "*", FIELD, sealed)))
