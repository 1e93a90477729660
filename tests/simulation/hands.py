"""What one life of a consumer holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from esper.bus.group.consumer import Consumer
from esper.bus.group.settlement import Settlement
from esper.bus.group.settling import settle
from esper.bus.names import beside
from esper.bus.protocol import Ask, RetryPolicy, Steps, until_answered
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened, Opener
from tests.simulation.record import JOBS, Key
from tests.simulation.world import Life

PATIENCE_S = 60.0


@dataclass(slots=True)
class Hands:
    """What one life of a consumer holds: all of it is lost in a crash."""

    life: Life
    consumer: Consumer
    guard: ReplayGuard
    opener: Opener
    version: bytes | None = None  # of the shared record, as it was read
    tokens: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(self.life.surroundings, "outbox", PATIENCE_S)

    def tried(self, ask: Ask) -> Steps[Any]:
        """One command, until it is answered."""
        return (yield from until_answered(partial(asked, ask), self.retry_policy))

    @property
    def memory(self) -> str:
        """The key under which the server remembers what this life settled last."""
        return beside(JOBS, f"settled:{self.life.consumer}")

    def settle(self, settlement: Settlement) -> Steps[list[str]]:
        if settlement.empty:
            return []
        return (yield from settle(settlement, self.memory, f"{next(self.tokens)}:", self.retry_policy))


def key_of(opened: Opened) -> Key:
    header = opened.header
    return f"{header.producer}/{header.incarnation:016x}/{header.sequence}"


def asked(ask: Ask) -> Steps[Any]:
    return (yield ask)
