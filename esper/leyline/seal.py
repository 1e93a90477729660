"""Sealing and opening: the one seam where it is decided what is believed."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from google.protobuf.message import DecodeError, Message

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import (
    BODY_LENGTH,
    HEAD,
    MAGIC,
    SIGNED,
    VERSION,
    DeadlineKind,
    Header,
    Parts,
    cap_of,
    pack_names,
    unpack,
)
from esper.leyline.keyring import RoleKeyring
from esper.leyline.kinds import Domain, Role, domain_of, domain_of_kind, kind_of, type_of
from esper.leyline.replay import ReplayGuard
from esper.leyline.validate import validate

FRESH_MS = 60_000
# An entry id further ahead of the server's clock than this was not made by that clock.
CLOCK_SLACK_MS = 1_000
EVERYONE = "*"

_MS_NS = 1_000_000
_NO_DEADLINE = (DeadlineKind.NONE, 0)


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
        self._names: dict[str, bytes] = {}

    def seal(
        self,
        message: Message,
        *,
        target: str = EVERYONE,
        deadline: tuple[DeadlineKind, int] = _NO_DEADLINE,
        roster_generation: int = 0,
    ) -> bytes:
        """Sealed bytes with the target's next sequence. To be sent within a minute; send the same bytes on a retry."""
        domain = domain_of(type(message))
        now_ns = self._clock_ns()
        key_id, key = self._keyring.seal_key(domain, self.role, now_ns)
        body = message.SerializeToString()
        _check_body(domain, body)
        names = self._names.get(target)
        if names is None:
            names = self._names[target] = pack_names(self._keyring.run_id, self.role, self.producer, target)
        signer = self._keyring.signing_key(key_id, self.role) if domain is Domain.COMMAND else None
        sequence = self._sequences[target] = self._sequences.get(target, 0) + 1
        head = HEAD.pack(
            MAGIC,
            VERSION,
            0 if signer is None else SIGNED,
            key_id,
            domain,
            kind_of(type(message)),
            self.incarnation,
            sequence,
            now_ns,
            *deadline,
            roster_generation,
        )
        data = b"".join((head, names, BODY_LENGTH.pack(len(body)), body))
        if signer is not None:
            data += signer.sign(data)
        return data + hmac.digest(key, data, "sha256")


@dataclass(frozen=True, slots=True)
class Opened:
    """A message that passed every check, and what its envelope said."""

    header: Header
    message: Message
    digest: bytes  # sha256 of all sealed bytes
    entry_id: str
    redelivered: bool  # this very entry was opened before
    clock_suspect: bool = False  # the entry's time lies ahead of the server's clock; age was taken from the reading


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
    ) -> None:
        self._keyring, self._guard, self._carries_out = keyring, guard, carries_out
        self._targets = frozenset({EVERYONE, name})
        self._accept = frozenset(accept)

    def open(self, data: bytes, entry_id: str, now_ms: int) -> Opened:
        """Check sealed bytes met as `entry_id` at `now_ms` of the server's clock; RefusedError says what was wrong."""
        parts = unpack(data)
        header = parts.header
        entry_ms = int(entry_id.partition("-")[0])
        clock_suspect = entry_ms > now_ms + CLOCK_SLACK_MS
        at_ms = now_ms if clock_suspect else entry_ms
        self._check_seal(data, parts, at_ms)
        self._check_context(header)
        _check_fresh(header, at_ms)
        if not self._carries_out:
            _check_deadline(header, now_ms)
        digest = hashlib.sha256(data).digest()
        redelivered = self._guard is not None and self._guard.note(header, entry_id, digest)
        message = _parse(header, data[parts.body_start : parts.body_end])
        validate(message)
        return Opened(header, message, digest, entry_id, redelivered, clock_suspect)

    def _check_seal(self, data: bytes, parts: Parts, at_ms: int) -> None:
        header = parts.header
        key = self._keyring.open_key(header.key_id, header.domain, header.role, at_ms * _MS_NS)
        computed = hmac.digest(key, memoryview(data)[: parts.seal_start], "sha256")
        if not hmac.compare_digest(computed, data[parts.seal_start :]):
            raise RefusedError(
                pb.ReasonCode.REASON_BAD_SEAL,
                f"the seal of {header.producer} in run {header.run_id} does not fit the keys of {self._keyring.run_id}",
            )

    def _check_context(self, header: Header) -> None:
        if header.run_id != self._keyring.run_id:
            raise _wrong_context("run", header.run_id, self._keyring.run_id)
        if header.domain not in self._accept:
            accepted = sorted(domain.name.lower() for domain in self._accept)
            raise _wrong_context("domain", header.domain.name.lower(), " or ".join(accepted))
        if header.target not in self._targets:
            raise _wrong_context("target", header.target, " or ".join(sorted(self._targets)))
        if domain_of_kind(header.kind) is not header.domain:
            raise RefusedError(
                pb.ReasonCode.REASON_WRONG_TYPE, f"kind {header.kind} does not travel in {header.domain.name.lower()}"
            )


def signature_of(data: bytes) -> bytes | None:
    """The Ed25519 signature that sealed bytes carry; None: they carry none."""
    parts = unpack(data)
    return data[parts.body_end : parts.seal_start] if parts.header.signed else None


def check_signature(data: bytes, keyring: RoleKeyring) -> None:
    """For audits: refuse sealed bytes that the role's own Ed25519 key has not signed. Opened bytes only."""
    parts = unpack(data)
    if not parts.header.signed:
        raise RefusedError(pb.ReasonCode.REASON_BAD_SEAL, f"message of {parts.header.producer} carries no signature")
    public = keyring.public_key(parts.header.key_id, parts.header.role)
    try:
        public.verify(data[parts.body_end : parts.seal_start], data[: parts.body_end])
    except InvalidSignature as error:
        raise RefusedError(pb.ReasonCode.REASON_BAD_SEAL, f"{parts.header.producer} did not sign this") from error


def _check_body(domain: Domain, body: bytes) -> None:
    cap = cap_of(domain)
    if len(body) > cap:
        raise RefusedError(
            pb.ReasonCode.REASON_OVERSIZE, f"{domain.name.lower()} body of {len(body)} bytes; expected at most {cap}"
        )


def _check_fresh(header: Header, at_ms: int) -> None:
    ahead_ms = header.issued_at_ns // _MS_NS - at_ms
    if ahead_ms > FRESH_MS:
        raise RefusedError(
            pb.ReasonCode.REASON_FROM_THE_FUTURE,
            f"sealed {ahead_ms / 1000:.1f} s after its entry was made; expected at most {FRESH_MS // 1000} s",
        )
    if -ahead_ms > FRESH_MS:
        raise RefusedError(
            pb.ReasonCode.REASON_STALE,
            f"sealed {-ahead_ms / 1000:.1f} s before its entry was made; expected at most {FRESH_MS // 1000} s",
        )


def _check_deadline(header: Header, now_ms: int) -> None:
    if header.deadline_kind is DeadlineKind.TIME_NS and now_ms * _MS_NS > header.deadline:
        late_s = now_ms / 1000 - header.deadline / 1e9
        raise RefusedError(pb.ReasonCode.REASON_PAST_DEADLINE, f"read {late_s:.3f} s after its deadline")


def _parse(header: Header, body: bytes) -> Message:
    message_type = type_of(header.kind)
    try:
        return message_type.FromString(body)
    except DecodeError as error:
        name = message_type.DESCRIPTOR.name
        raise RefusedError(pb.ReasonCode.REASON_MALFORMED, f"body of {len(body)} bytes is no {name}") from error


def _wrong_context(what: str, met: str, expected: str) -> RefusedError:
    return RefusedError(pb.ReasonCode.REASON_WRONG_CONTEXT, f"{what} is {met!r}; expected {expected}")
