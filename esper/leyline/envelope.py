"""Envelope v1: the bytes around every message on Redis. Lays them out and takes them apart, checks no seal."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

from esper.errors import RefusedError, UnsealedError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role

MAGIC = b"ES"
VERSION = 1
SIGNED = 0x01
SIGNATURE_BYTES = 64
SEAL_BYTES = 32
COMMAND_CAP_BYTES = 64 << 10
BODY_CAP_BYTES = 1 << 20

# magic, version, flags, key_id, domain, kind, incarnation, sequence, issued_at_ns, deadline_kind, deadline, generation
HEAD = struct.Struct(">2sBBIBHQQQBQI")
REST = struct.Struct(">QQBQI")
ALIKE = HEAD.size - REST.size
"""From the magic to the incarnation: the same bytes in every message of one kind that a producer seals with one key."""
BODY_LENGTH = struct.Struct(">I")
_NUM_NAMES = 4
MAX_SEALED_BYTES = HEAD.size + _NUM_NAMES * 256 + BODY_LENGTH.size + BODY_CAP_BYTES + SIGNATURE_BYTES + SEAL_BYTES


class DeadlineKind(IntEnum):
    """What a deadline is counted in."""

    NONE = 0
    TIME_NS = 1  # since the epoch; checked when opened
    STEP = 2  # checked by the judge
    EPOCH = 3  # checked by the judge


# Looked up once: a flood of junk asks for nothing else, and the wrapper looks through three tables for each name.
_MALFORMED, _OVERSIZE = pb.ReasonCode.REASON_MALFORMED, pb.ReasonCode.REASON_OVERSIZE

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_DOMAINS = {int(domain): domain for domain in Domain}
_ROLES = {role.value.encode(): role for role in Role}
DEADLINES = {int(kind): kind for kind in DeadlineKind}


class Header(NamedTuple):
    """Everything that an envelope says about its body. (incarnation, sequence) are the nonce."""

    key_id: int
    domain: Domain
    kind: int
    incarnation: int
    sequence: int
    issued_at_ns: int
    deadline_kind: DeadlineKind
    deadline: int
    roster_generation: int
    run_id: str
    role: Role
    producer: str
    target: str
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the pieces of sealed bytes lie. Nothing in it is to be believed before the seal was checked."""

    header: Header
    body_start: int
    body_end: int
    seal_start: int


def cap_of(domain: Domain) -> int:
    """The most bytes that a body of this domain may have."""
    return COMMAND_CAP_BYTES if domain in (Domain.COMMAND, Domain.OPTIMIZER) else BODY_CAP_BYTES


def pack_names(run_id: str, role: Role, producer: str, target: str) -> bytes:
    """The four names, each behind its length in one byte."""
    packed = bytearray()
    for name in (run_id, role, producer, target):
        encoded = name.encode()
        if not 0 < len(encoded) < 256:
            raise RefusedError(
                pb.ReasonCode.REASON_OUT_OF_RANGE, f"name {name!r} has {len(encoded)} bytes; expected 1 to 255"
            )
        packed.append(len(encoded))
        packed += encoded
    return bytes(packed)


def unpack(data: bytes) -> Parts:
    """Take sealed bytes apart. Refuses what is too long, cut short, or follows no rule of the layout."""
    if len(data) > MAX_SEALED_BYTES:
        raise UnsealedError(_OVERSIZE, f"message of {len(data)} bytes; expected at most {MAX_SEALED_BYTES}")
    if len(data) < HEAD.size:
        raise _malformed(f"message of {len(data)} bytes; a header has {HEAD.size}")
    (
        magic,
        version,
        flags,
        key_id,
        domain,
        kind,
        incarnation,
        sequence,
        issued_at_ns,
        deadline_kind,
        deadline,
        roster,
    ) = HEAD.unpack_from(data)
    _check_start(magic, version, flags, sequence)
    names, position = _names(data)
    body_start = position + BODY_LENGTH.size
    known_domain = _known(_DOMAINS, domain, "domain")
    body_end = body_start + _body_length(data, position, known_domain)
    seal_start = body_end + (SIGNATURE_BYTES if flags == SIGNED else 0)
    if len(data) != seal_start + SEAL_BYTES:  # before the rest is looked at: a flood may well be of cut envelopes
        raise _malformed(f"message of {len(data)} bytes; its header promises {seal_start + SEAL_BYTES}")
    header = Header(
        key_id,
        known_domain,
        kind,
        incarnation,
        sequence,
        issued_at_ns,
        _known(DEADLINES, deadline_kind, "deadline kind"),
        deadline,
        roster,
        _text(names[0]),
        _known(_ROLES, names[1], "role"),
        _text(names[2]),
        _text(names[3]),
        flags == SIGNED,
    )
    return Parts(header, body_start, body_end, seal_start)


def _check_start(magic: bytes, version: int, flags: int, sequence: int) -> None:
    if magic != MAGIC:
        raise _malformed(f"message begins with {magic!r}; expected {MAGIC!r}")
    if version != VERSION:
        # Not junk: a reader of tomorrow may know it.
        raise RefusedError(pb.ReasonCode.REASON_WRONG_VERSION, f"envelope version {version}; expected {VERSION}")
    if flags not in (0, SIGNED):
        raise _malformed(f"flags {flags:#04x}; expected 0x00 or 0x01")
    if sequence == 0:
        raise _malformed("sequence 0; they run from 1")


def _names(data: bytes) -> tuple[list[bytes], int]:
    names, position = [], HEAD.size
    for _ in range(_NUM_NAMES):
        if position >= len(data):
            raise _malformed(f"message of {len(data)} bytes ends inside its names")
        start, position = position + 1, position + 1 + data[position]
        if position == start:
            raise _malformed("a name in the header is empty")
        names.append(data[start:position])
    return names, position


def _body_length(data: bytes, position: int, domain: Domain) -> int:
    if len(data) < position + BODY_LENGTH.size:
        raise _malformed(f"message of {len(data)} bytes ends before its body")
    length: int = BODY_LENGTH.unpack_from(data, position)[0]
    cap = cap_of(domain)
    if length > cap:
        raise UnsealedError(_OVERSIZE, f"{domain.name.lower()} body of {length} bytes; expected at most {cap}")
    return length


def _known(table: Mapping[_Key, _Value], key: _Key, what: str) -> _Value:
    value = table.get(key)
    if value is None:
        raise _malformed(f"{what} {key!r} is unknown")
    return value


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _malformed(f"name {raw!r} in the header is no UTF-8") from error


def _malformed(detail: str) -> UnsealedError:
    return UnsealedError(_MALFORMED, detail)
