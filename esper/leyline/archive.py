"""A run's log as lines of JSON: sealed envelopes as they are, each under its stream and entry id. Checks no seal."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

from esper.errors import SettingError
from esper.leyline.envelope import MAX_SEALED_BYTES
from esper.leyline.validate.bounds import ENTRY_ID

FORMAT = 1
STREAMS = ("commands", "optimizer", "decisions", "receipts", "emergency")
"""What a log is made of: all that a run has decided, and from what. In this order in an exported file."""
MOST_LINE_BYTES = MAX_SEALED_BYTES * 4 // 3 + 1024


class Entry(NamedTuple):
    """One entry of a stream, with the bytes that were sealed."""

    stream: str
    entry_id: str
    sealed: bytes


@dataclass(frozen=True, slots=True)
class LogHeader:
    """First line of an exported log: whose it is, and which keys (ids in hex) have sealed it."""

    run_id: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogTrailer:
    """Last line of an exported log: how many entries there are above, and the SHA-256 (hex) of all lines above."""

    num_entries: int
    sha256: str


Line: TypeAlias = Entry | LogHeader | LogTrailer


class LogLineError(SettingError):
    """A line of a log that is none."""

    def __init__(self, number: int, met: object, expected: str) -> None:
        self.number = number
        super().__init__(f"line {number} of the log", met, expected)


def encode_line(line: Line) -> bytes:
    """One line, with its end. An archive needs entries alone; an exported log has a head and a foot."""
    row: dict[str, Any]
    match line:
        case Entry():
            row = {"stream": line.stream, "id": line.entry_id, "m": base64.b64encode(line.sealed).decode()}
        case LogHeader():
            row = {"esper_log": FORMAT, "run": line.run_id, "keys": list(line.keys)}
        case LogTrailer():
            row = {"entries": line.num_entries, "sha256": line.sha256}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def decode_line(raw: bytes, number: int, streams: Collection[str] = STREAMS) -> Line:
    """Take one line apart. LogLineError names the line, what was met and what was expected."""
    if len(raw) > MOST_LINE_BYTES:
        raise LogLineError(number, f"{len(raw)} bytes", f"at most {MOST_LINE_BYTES}")
    if not raw.endswith(b"\n"):
        raise LogLineError(number, _short(raw), "a whole line; the file is cut short")
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise LogLineError(number, _short(raw), "a JSON object") from error
    if not isinstance(row, dict):
        raise LogLineError(number, _short(raw), "a JSON object")
    if "esper_log" in row:
        return _header_of(row, number)
    return _trailer_of(row, number) if "entries" in row else _entry(row, number, streams)


def encode(head: LogHeader, entries: Iterable[Entry]) -> Iterator[bytes]:
    """All lines of an exported log."""
    digest, num_entries = sha256(), 0
    for line in _lines(head, entries):
        raw = encode_line(line)
        num_entries += isinstance(line, Entry)
        digest.update(raw)
        yield raw
    yield encode_line(LogTrailer(num_entries, digest.hexdigest()))


def _lines(head: LogHeader, entries: Iterable[Entry]) -> Iterator[Line]:
    yield head
    yield from entries


def _header_of(row: dict[str, Any], number: int) -> LogHeader:
    if row["esper_log"] != FORMAT:
        raise LogLineError(number, f"format {row['esper_log']!r}", f"format {FORMAT}")
    run_id, keys = row.get("run"), row.get("keys", [])
    if not isinstance(run_id, str) or not run_id or not _is_text(keys):
        raise LogLineError(number, _short(json.dumps(row).encode()), 'a head with "run" and "keys"')
    return LogHeader(run_id, tuple(keys))


def _trailer_of(row: dict[str, Any], number: int) -> LogTrailer:
    num_entries, digest = row["entries"], row.get("sha256")
    if not isinstance(num_entries, int) or not isinstance(digest, str):
        raise LogLineError(number, _short(json.dumps(row).encode()), 'a foot with "entries" and "sha256"')
    return LogTrailer(num_entries, digest)


def _entry(row: dict[str, Any], number: int, streams: Collection[str]) -> Entry:
    stream, entry_id, encoded = (row.get(name) for name in ("stream", "id", "m"))
    if stream not in streams:
        raise LogLineError(number, f"stream {stream!r}", f"one of {', '.join(streams)}")
    if not isinstance(entry_id, str) or not ENTRY_ID.fullmatch(entry_id):
        raise LogLineError(number, f"id {entry_id!r}", "an entry id such as 1700000000000-0")
    try:
        sealed = base64.b64decode(encoded, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, TypeError, ValueError) as error:
        raise LogLineError(number, f"m {_short(str(encoded).encode())}", "sealed bytes in base64") from error
    return Entry(str(stream), entry_id, sealed)


def _is_text(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _short(raw: bytes) -> str:
    return raw[:60].decode(errors="replace") + ("..." if len(raw) > 60 else "")
