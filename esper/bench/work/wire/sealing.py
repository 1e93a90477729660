"""Sealing, opening, serialising and parsing one message, and the digest that no seal does without."""

from __future__ import annotations

import hmac
import time
from collections import deque
from contextlib import suppress
from itertools import count

from google.protobuf.message import Message

from esper.bench.arm import Ready
from esper.bench.work.wire.messages import MESSAGES
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.keys.mac import Mac
from esper.leyline.kinds import SEALS, Role, domain_of
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer

RUN, KEY = "bench-00000001", bytes(range(32))
PERSIST_EVERY = 256  # messages that a busy consumer settles at once


class Wire:
    """One message, who seals it, and who opens it: each producer in the first role that may say such a message."""

    def __init__(self, name: str, guard: ReplayGuard | None = None) -> None:
        self.message, self.guard = MESSAGES[name](), guard
        domain = domain_of(type(self.message))
        role = next(role for role, sealed in SEALS.items() if domain in sealed)
        master = MasterKeyring.new(time.time_ns())
        self.sealer = Sealer(master.derive(RUN, [role]), role, "worker-0")
        self.opener = Opener(master.derive(RUN, [Role.OBSERVER]), guard=guard, accept=[domain])
        self._entries, self._stock = count(1), deque[tuple[bytes, str, int]]()

    def seal(self) -> bytes:
        return self.sealer.seal(self.message)

    def stock(self) -> None:
        """Have one to open."""
        if not self._stock:
            self.restock()

    @property
    def num_stocked(self) -> int:
        return len(self._stock)

    def restock(self) -> None:
        """More to open; what was met before is taken to be persisted, as a busy consumer does."""
        for _ in range(PERSIST_EVERY):
            now_ms = time.time_ns() // 1_000_000
            self._stock.append((self.seal(), f"{now_ms}-{next(self._entries)}", now_ms))
        if self.guard is not None:
            self.guard.changed()

    def taken(self) -> bytes:
        """The next of the stock."""
        return self._stock.popleft()[0]

    def open(self) -> Message:
        return self.opener.open(*self._stock.popleft()).message

    def opened(self, sealed: bytes) -> Message:
        now_ms = time.time_ns() // 1_000_000
        return self.opener.open(sealed, f"{now_ms}-{next(self._entries)}", now_ms).message

    def refuses(self, sealed: bytes, what: str) -> None:
        """RuntimeError where this is opened."""
        with suppress(RefusedError):
            self.opened(sealed)
            raise RuntimeError(f"{what} was opened")


def digest(name: str) -> Ready:
    """The least that authentication costs: one digest of the sealed bytes by the standard library's one call."""
    data = Wire(name).seal()
    return Ready(lambda: hmac.digest(KEY, data, "sha256"))


def digest_from_states(name: str) -> Ready:
    """The same digest from hash states kept with the key; ValueError where it is another one."""
    data, mac = Wire(name).seal(), Mac(KEY)
    if mac.digest(data) != hmac.digest(KEY, data, "sha256"):
        raise ValueError("the digest from kept states is not the library's")
    return Ready(lambda: mac.digest(data))


def sealing(name: str) -> Ready:
    wire = Wire(name)
    return Ready(wire.seal, answer=lambda: plain(wire.opened(wire.seal())))


def opening(name: str, once: bool = False) -> Ready:
    """`once`: with the record that refuses whatever was met before. RuntimeError where a forgery, or then a repeat, is
    opened: what checks nothing gives the same message, and sooner."""
    wire = Wire(name, ReplayGuard() if once else None)

    def answer() -> bytes:
        wire.stock()
        sealed = wire.taken()
        wire.refuses(bytes([*sealed[:-1], sealed[-1] ^ 1]), "a forgery")
        opened = plain(wire.opened(sealed))
        if once:
            wire.refuses(sealed, "a repeat")
        return opened

    return Ready(wire.open, answer=answer, before=wire.stock)


def copying(name: str) -> Ready:
    """What any serialising does at least: write so many bytes anew."""
    body = bytearray(MESSAGES[name]().SerializeToString())
    return Ready(lambda: bytes(body))


def serialising(name: str) -> Ready:
    message = MESSAGES[name]()
    return Ready(message.SerializeToString, answer=lambda: plain(type(message).FromString(message.SerializeToString())))


def parsing(name: str) -> Ready:
    message = MESSAGES[name]()
    body = message.SerializeToString()
    return Ready(lambda: type(message).FromString(body), answer=lambda: plain(type(message).FromString(body)))


def building(name: str) -> Ready:
    """The message built from its values, and serialised."""
    make = MESSAGES[name]
    return Ready(lambda: make().SerializeToString(), answer=lambda: plain(make()))


def plain(message: Message) -> bytes:
    """Its bytes with maps in one order, and without the moment at which it was built."""
    twin = type(message)()
    twin.CopyFrom(message)
    for timed in (twin, *(twin.packets if isinstance(twin, pb.TelemetryFrame) else ())):
        for name in ("timestamp_ns", "time_ns"):
            field = type(timed).DESCRIPTOR.fields_by_name.get(name)
            if field is not None and isinstance(getattr(timed, name), int):
                timed.ClearField(name)
    return twin.SerializeToString(deterministic=True)
