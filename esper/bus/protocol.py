"""The bus's protocols without I/O: generators that yield what they ask for, and are sent what was answered.

A protocol is a generator (`Steps[T]`). It yields `Ask`, one Redis command, and is sent the reply as it came: bytes,
ints, lists, None, as RESP2 gives them; RESP3's maps are understood too. A command that failed is thrown in as a
BusError: LostError (whether it took effect is not known), another UnavailableError (it did not, and may later),
NoGroupError, NoScriptError, or a BusError that is fatal and comes out again. It yields `Pause` to wait, and is sent
whether the wait was cut short because the process stops. It returns its result; closed at any moment, as by a
cancellation, it knows that the reply to its last Ask never arrived.

Time is an injected clock (monotonic seconds), jitter an injected random.Random: a simulation drives the same code that
`esper.bus.drive` drives against a server. The protocols:

    Consumer(source, pace, surroundings)                            esper/bus/group/consumer.py
        .open()                                     Steps[bool]     the group is there; whether it was made now
        .next_batch(wait=...)                       Steps[list[Delivery]]
        .ahead()                                    Steps[list[Delivery]]   new entries, while a batch is in hand
        .release(unread)                            Steps[int]      hand back what is pending; how many
        .rewind(ahead), .abandon(batch)             no steps: they say what became of batches
    settle(settlement, memory, token, policy)       Steps[list[str]]        esper/bus/group/settling.py
    recall(hash_key, policy)                        Steps[dict[bytes, bytes]]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

from esper.bus.backoff import Backoff
from esper.bus.faults import UnavailableError
from esper.bus.outage import Outage

Argument: TypeAlias = bytes | str  # an int may crash hiredis: see packing.in_words
Clock: TypeAlias = Callable[[], float]
T = TypeVar("T")


class Ask(NamedTuple):
    """One Redis command. `block_ms` set: it goes to the client for reads, with a deadline above what it may block."""

    words: tuple[Argument, ...]
    block_ms: int | None = None


class Pause(NamedTuple):
    """A wait, which a stop ends early."""

    seconds: float


Steps: TypeAlias = Generator[Ask | Pause, Any, T]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a protocol shares with its process: the time, the dice, and who says that Redis is gone."""

    clock: Clock
    jitter: random.Random = field(default_factory=random.Random)
    outage: Outage = field(default_factory=Outage)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Who tries, and for how long it goes on after the first failure."""

    surroundings: Surroundings
    who: str
    seconds: float


def until_answered(ask: Callable[[], Steps[T]], policy: RetryPolicy) -> Steps[T]:
    """Ask again after every failure that may pass, until `policy` ends that; then its last error comes out."""
    clock, outage = policy.surroundings.clock, policy.surroundings.outage
    backoff, deadline = Backoff(policy.surroundings.jitter), clock() + policy.seconds
    while True:
        try:
            reply = yield from ask()
        except UnavailableError as error:
            outage.begins(policy.who, error)
            if clock() >= deadline:
                raise
            yield Pause(backoff.next_s())
        else:
            outage.ends(policy.who)
            return reply


def pairs_of(reply: Any) -> dict[bytes, Any]:
    """A reply that maps, which RESP2 gives as a flat list and RESP3 as a map."""
    if isinstance(reply, dict):
        return reply
    flat = reply or []
    if flat and isinstance(flat[0], (list, tuple)):
        return dict(flat)
    return dict(zip(flat[::2], flat[1::2], strict=True))
