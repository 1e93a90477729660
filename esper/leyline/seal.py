"""Sealing and opening: the one seam where it is decided what is believed."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple

from google.protobuf.message import DecodeError, Message
from nacl.bindings import crypto_sign
from nacl.exceptions import BadSignatureError

from esper.errors import RefusedError, UnsealedError
from esper.leyline import contracts as pb
from esper.leyline.checks import (
    CLOCK_SLACK_MS,
    FRESH_MS as FRESH_MS,
    MS_NS,
    check_body,
    check_context,
    check_deadline,
    check_fresh,
)
from esper.leyline.entries import entry_order
from esper.leyline.envelope import (
    ALIKE,
    BODY_LENGTH,
    DEADLINES,
    HEAD,
    MAGIC,
    REST,
    SEAL_BYTES,
    SIGNATURE_BYTES,
    SIGNED,
    VERSION,
    DeadlineKind,
    Header,
    Parts,
    cap_of,
    pack_names,
    unpack,
)
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.keys.mac import Mac
from esper.leyline.kinds import Domain, Role, domain_of, kind_of, type_of
from esper.leyline.replay import FINGERPRINT_BYTES, ReplayGuard, redelivered
from esper.leyline.routes import Reading, Route, Routes, misfit
from esper.leyline.validate import bounds
from esper.leyline.validate.telemetry import Names
from esper.leyline.window import RECORD

EVERYONE = "*"

_NO_DEADLINE = (DeadlineKind.NONE, 0)
_FOR_EVER = 1 << 64
_SEAL_AT, _FINGERPRINT_END = -SEAL_BYTES, FINGERPRINT_BYTES - SEAL_BYTES
_BAD_SEAL = pb.ReasonCode.REASON_BAD_SEAL  # looked up once: a flood has one for every message


class _Line(NamedTuple):
    """What is the same in every message of one type to one target, for as long as its key is the newest."""

    start: bytes
    names: bytes
    mac: Mac
    signing_key: bytes
    """As libsodium takes it, private and public half; empty where nothing is signed."""
    domain: Domain
    cap: int
    since_ns: int
    until_ns: int
    keyring_version: int

    def __repr__(self) -> str:
        """Not the keys: some who report an error show what the functions on its way held."""
        return f"<{self.domain.name.lower()} line>"


class Sealer:
    """Seals what one producer says in one role. A fresh incarnation each: sequences are never used twice."""

    def __init__(
        self,
        keyring: RoleKeyring,
        role: Role,
        producer: str,
        *,
        incarnation: int | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.producer, self.role = producer, role
        self.incarnation = secrets.randbits(64) if incarnation is None else incarnation
        self._keyring, self._clock_ns = keyring, clock_ns
        self._sequences: dict[str, int] = {}
        self._lines: dict[tuple[type[Message], str], _Line] = {}

    def seal(
        self,
        message: Message,
        *,
        target: str = EVERYONE,
        deadline: tuple[DeadlineKind, int] = _NO_DEADLINE,
        roster_generation: int = 0,
    ) -> bytes:
        """Sealed bytes with the target's next sequence. To be sent within a minute; send the same bytes on a retry."""
        now_ns = self._clock_ns()
        line = self._line(type(message), target, now_ns)
        body = message.SerializeToString()
        if len(body) > line.cap:
            check_body(line.domain, body)
        sequence = self._sequences[target] = self._sequences.get(target, 0) + 1
        return _sealed(line, REST.pack(sequence, now_ns, *deadline, roster_generation), body)

    def _line(self, message_type: type[Message], target: str, now_ns: int) -> _Line:
        line = self._lines.get((message_type, target))
        if line is None or not line.since_ns <= now_ns < line.until_ns or line.keyring_version != self._keyring.version:
            line = self._lines[message_type, target] = self._new_line(message_type, target, now_ns)
        return line

    def _new_line(self, message_type: type[Message], target: str, now_ns: int) -> _Line:
        domain, keyring = domain_of(message_type), self._keyring
        key_id, key = keyring.seal_key(domain, self.role, now_ns)
        signer = keyring.signing_key(key_id, self.role) if domain is Domain.COMMAND else None
        signing_key = b"" if signer is None else bytes(signer) + bytes(signer.verify_key)
        flags, kind = SIGNED if signing_key else 0, kind_of(message_type)
        head = HEAD.pack(MAGIC, VERSION, flags, key_id, domain, kind, self.incarnation, 0, 0, 0, 0, 0)
        names = pack_names(keyring.run_id, self.role, self.producer, target)
        until_ns = keyring.changes_at(now_ns) or _FOR_EVER
        cap, version = cap_of(domain), keyring.version
        return _Line(head[:ALIKE], names, Mac(key), signing_key, domain, cap, now_ns, until_ns, version)


def _sealed(line: _Line, rest: bytes, body: bytes) -> bytes:
    data = b"".join((line.start, rest, line.names, BODY_LENGTH.pack(len(body)), body))
    if line.signing_key:
        data += crypto_sign(data, line.signing_key)[:SIGNATURE_BYTES]  # a twentieth less than by SigningKey.sign
    return data + line.mac.digest(data)


class Opened(NamedTuple):
    """A message that passed every check, and what its envelope said."""

    header: Header
    message: Message
    sealed: bytes
    entry_id: str
    redelivered: bool  # this very entry was opened before
    clock_suspect: bool = False  # the entry's time lies ahead of the server's clock; age was taken from the reading
    route: Route | None = None  # one object for messages of one kind, from one incarnation of a producer to one target
    names: Names = None

    @property
    def digest(self) -> bytes:
        """SHA-256 of all sealed bytes."""
        return sha256(self.sealed).digest()


_opened: Callable[[tuple[object, ...]], Opened] = partial(tuple.__new__, Opened)  # half of what its own call takes


class Opener:
    """Opens what a process may read. Refuses with a reason; what isn't authentic is neither parsed nor noted.

    `carries_out` is for a rank: it must do what was decided, and deadlines were checked by the judge who decided it.
    """

    def __init__(
        self,
        keyring: RoleKeyring,
        *,
        name: str = EVERYONE,
        guard: ReplayGuard | None,
        accept: Collection[Domain],
        carries_out: bool = False,
        readings: Mapping[type[Message], Callable[[], Reading]] = MappingProxyType({}),
    ) -> None:
        self._readings = readings
        self._keyring, self._guard, self._carries_out = keyring, guard, carries_out
        self._targets = frozenset({EVERYONE, name})
        self._accept = frozenset(accept)
        self._routes = Routes()

    def open(self, data: bytes, entry_id: str, now_ms: int) -> Opened:
        """Check sealed bytes met as `entry_id` at `now_ms` of the server's clock; RefusedError says what was wrong."""
        entry_ms, entry_count = entry_order(entry_id)
        clock_suspect = entry_ms > now_ms + CLOCK_SLACK_MS
        at_ms = now_ms if clock_suspect else entry_ms
        route = self._routes.find(data)
        header = None if route is None else self._header_by(route, data, at_ms)
        if route is None or header is None:
            route, header = self._look_up(data, at_ms)
        if header.deadline_kind and not self._carries_out:
            check_deadline(header, now_ms)
        again, guard = False, self._guard
        if guard is not None:
            if route.window is None or route.generation != guard.generation:
                route.window, route.generation = guard.window_of(header), guard.generation
            record = RECORD.pack(entry_ms, entry_count, data[_SEAL_AT:_FINGERPRINT_END])
            seen = route.window.note(header.sequence, record)
            again = seen is not None and redelivered(seen, record, header, route.window)
        try:
            message = route.parse(data[route.body_at : -route.trailer])
        except DecodeError as error:
            raise _no_such(route, data) from error
        if message.version != bounds.VERSION:
            bounds.version(message)
        names = route.rule(message)
        return _opened((header, message, data, entry_id, again, clock_suspect, route, names))

    def _header_by(self, route: Route, data: bytes, at_ms: int) -> Header | None:
        """The header of an envelope that is sound and fresh by what its route knows; UnsealedError: its seal is not.

        None where anything else is odd: then the long way says what.
        """
        length = len(data) - route.overhead
        if not 0 <= length <= route.cap or route.keyring_version != self._keyring.version:
            return None
        sequence, issued_at_ns, kind, deadline, roster, told = route.layout.unpack_from(data, ALIKE)
        deadline_kind = DEADLINES.get(kind)
        if told != length or deadline_kind is None or sequence == 0 or not route.from_ms <= at_ms < route.until_ms:
            return None
        if not hmac.compare_digest(route.mac.digest(data[:_SEAL_AT]), data[_SEAL_AT:]):
            raise UnsealedError(_BAD_SEAL, route.misfit)  # at once: anybody can send a flood of it
        if not -FRESH_MS <= issued_at_ns // MS_NS - at_ms <= FRESH_MS:
            return None
        return route.header(sequence, issued_at_ns, deadline_kind, deadline, roster)

    def _look_up(self, data: bytes, at_ms: int) -> tuple[Route, Header]:
        """The long way: every check in its order. What passes is known by its route from now on."""
        parts = unpack(data)
        header = parts.header
        key = self._keyring.open_key(header.key_id, header.domain, header.role, at_ms * MS_NS)
        mac = Mac(key)
        self._check_seal(data, parts, mac)
        check_context(header, self._keyring.run_id, self._accept, self._targets)
        check_fresh(header, at_ms)
        route = Route(data, parts, mac, self._keyring.validity(header.key_id), self._keyring.version)
        if reading := self._readings.get(type_of(header.kind)):
            route.read_by(reading())
        self._routes.add(data, route)
        return route, header

    def _check_seal(self, data: bytes, parts: Parts, mac: Mac) -> None:
        header = parts.header
        if not hmac.compare_digest(mac.digest(data[: parts.seal_start]), data[parts.seal_start :]):
            # Junk, unless these are the keys of another run, handed to this process by mistake.
            junk = header.run_id == self._keyring.run_id
            raise (UnsealedError if junk else RefusedError)(_BAD_SEAL, misfit(header, self._keyring.run_id))


def check_signature(data: bytes, keyring: RoleKeyring) -> None:
    """For audits: refuse sealed bytes that the role's own Ed25519 key has not signed. Opened bytes only."""
    parts = unpack(data)
    if not parts.header.signed:
        raise RefusedError(_BAD_SEAL, f"message of {parts.header.producer} carries no signature")
    public = keyring.public_key(parts.header.key_id, parts.header.role)
    try:
        public.verify(data[: parts.body_end], data[parts.body_end : parts.seal_start])
    except BadSignatureError as error:
        raise RefusedError(_BAD_SEAL, f"{parts.header.producer} did not sign this") from error


def _no_such(route: Route, data: bytes) -> RefusedError:
    name, num_bytes = type_of(route.head[2]).DESCRIPTOR.name, len(data) - route.trailer - route.body_at
    return RefusedError(pb.ReasonCode.REASON_MALFORMED, f"body of {num_bytes} bytes is no {name}")
