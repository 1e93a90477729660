"""What is known of envelopes that begin alike, once one of them was believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct
from typing import Any, Protocol

from esper.leyline.checks import MS_NS
from esper.leyline.envelope import (
    ALIKE,
    BODY_LENGTH,
    HEAD,
    REST,
    SEAL_BYTES,
    SIGNATURE_BYTES,
    DeadlineKind,
    Header,
    Parts,
    cap_of,
)
from esper.leyline.keys.mac import Mac
from esper.leyline.keys.rolekeys import Validity
from esper.leyline.kinds import type_of
from esper.leyline.validate.messages import Rule, rule_of
from esper.leyline.validate.telemetry import Names
from esper.leyline.window import Window

MOST_ROUTES = 1024


class Reading(Protocol):
    """Takes the place of parsing and checking bodies, for one producer's of one kind; keeps what it knows of them."""

    def parse(self, body: bytes) -> Any: ...
    def rule(self, message: Any) -> Names: ...


_header: Callable[[Iterable[object]], Header] = partial(tuple.__new__, Header)  # _make() takes twice as long


class Route:
    """The key, names and places of one producer's messages of one kind to one target, so that they are looked up once.

    Made only for an envelope whose seal and context were checked. Good for one version of the keyring.
    """

    __slots__ = (
        "body_at",
        "cap",
        "from_ms",
        "generation",
        "head",
        "keyring_version",
        "layout",
        "mac",
        "misfit",
        "names",
        "overhead",
        "parse",
        "rule",
        "tail",
        "trailer",
        "until_ms",
        "window",
    )

    def __init__(self, data: bytes, parts: Parts, mac: Mac, validity: Validity, keyring_version: int) -> None:
        header = parts.header
        self.head, self.tail = header[:4], header[9:]  # before and after what REST says
        self.misfit = misfit(header, header.run_id)
        self.mac, self.keyring_version = mac, keyring_version
        # A time of so many whole milliseconds lies within the key's, in nanoseconds, just if it lies between these.
        self.from_ms, self.until_ms = -(-validity.not_before_ns // MS_NS), -(-validity.not_after_ns // MS_NS)
        self.body_at, self.cap = parts.body_start, cap_of(header.domain)
        self.names = data[HEAD.size : self.body_at - BODY_LENGTH.size]
        # From ALIKE on: what REST says, and behind the names the length of the body.
        self.layout = Struct(f"{REST.format}{len(self.names)}xI")
        self.trailer = SEAL_BYTES + (SIGNATURE_BYTES if header.signed else 0)
        self.overhead = self.body_at + self.trailer  # all bytes but the body's
        message_type = type_of(header.kind)
        self.parse: Callable[[bytes], Any] = message_type.FromString
        self.rule: Rule = rule_of(message_type)
        self.window: Window | None = None
        self.generation = -1  # of the guard that the window belongs to

    def read_by(self, reading: Reading) -> None:
        """Have bodies read by this from now on."""
        self.parse, self.rule = reading.parse, reading.rule

    def header(self, sequence: int, issued_at_ns: int, kind: DeadlineKind, deadline: int, roster: int) -> Header:
        """The header of one message."""
        return _header((*self.head, sequence, issued_at_ns, kind, deadline, roster, *self.tail))


def misfit(header: Header, run_id: str) -> str:
    """What is said of an envelope whose seal none of the keys of this run has made."""
    return f"the seal of {header.producer} in run {header.run_id} does not fit the keys of {run_id}"


class Routes:
    """A bounded table of routes. Bytes that were not believed never get in."""

    def __init__(self) -> None:
        self._routes: dict[bytes, tuple[Route, ...]] = {}
        self._num = 0

    def find(self, data: bytes) -> Route | None:
        """The route of sealed bytes; None: not met yet."""
        for route in self._routes.get(data[:ALIKE], ()):
            if data.startswith(route.names, HEAD.size):
                return route
        return None

    def add(self, data: bytes, route: Route) -> None:
        """Remember one, in place of what was there for the same names. A full table begins anew."""
        if self._num >= MOST_ROUTES:
            self._routes.clear()
            self._num = 0
        start = data[:ALIKE]
        others = tuple(each for each in self._routes.get(start, ()) if each.names != route.names)
        self._routes[start] = (*others, route)
        self._num += 1
