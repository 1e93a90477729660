"""Which envelopes have been seen: a redelivery of the same entry is legal, the same envelope anywhere else is not."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import Header

CHUNK_SEQUENCES = 64
NUM_CHUNKS = 16
"""A window spans the newest 1,024 sequences, in chunks: one more message rewrites one chunk, not the whole window."""
_DIGEST_BYTES = 8
_NUMBER = struct.Struct(">Q")
_SEEN = struct.Struct(f">QQQ{_DIGEST_BYTES}s")


class _Seen(NamedTuple):
    entry_ms: int
    entry_count: int
    digest: bytes


_Chunk = dict[int, _Seen]
_WindowName = tuple[str, str, int, str]


@dataclass(slots=True)
class _Window:
    """What was seen of one (role, producer, incarnation, target), by chunk number."""

    chunks: dict[int, _Chunk] = field(default_factory=dict)

    @property
    def lowest_chunk(self) -> int:
        return max(self.chunks, default=0) - NUM_CHUNKS + 1

    def newest_ms(self) -> int:
        return max((seen.entry_ms for chunk in self.chunks.values() for seen in chunk.values()), default=0)

    def drop_old(self) -> None:
        lowest = self.lowest_chunk
        for number in [number for number in self.chunks if number < lowest]:
            del self.chunks[number]


class ReplayGuard:
    """Windows over what was opened, per producer and target. Knows nothing of Redis: the caller persists them."""

    def __init__(self) -> None:
        self._windows: dict[_WindowName, _Window] = {}
        self._touched: dict[tuple[_WindowName, int], None] = {}
        self._dropped: set[str] = set()

    def note(self, header: Header, entry_id: str, digest: bytes) -> bool:
        """Remember an authenticated envelope; True: the same entry was here before."""
        name = (header.role.value, header.producer, header.incarnation, header.target)
        window = self._windows.get(name)
        if window is None:
            window = self._windows[name] = _Window()
        number = header.sequence // CHUNK_SEQUENCES
        chunk = window.chunks.get(number)
        if chunk is None:
            chunk = _new_chunk(window, number, header)
        met = _Seen(*_entry_numbers(entry_id), digest[:_DIGEST_BYTES])
        seen = chunk.setdefault(header.sequence, met)
        if seen is met:
            self._touched[name, number] = None
            return False
        return _judge_repeat(seen, met, header, entry_id)

    def changed(self) -> dict[str, bytes]:
        """Fields to be persisted with the effect of what was noted since the last call; empty bytes: forgotten."""
        fields = dict.fromkeys(self._dropped, b"")
        for name, number in self._touched:
            window = self._windows.get(name)
            if window is not None and number in window.chunks:
                fields[_field_name(name, number)] = _pack_chunk(number, window.chunks[number])
        self._touched.clear()
        self._dropped.clear()
        return fields

    def load(self, fields: Mapping[str, bytes]) -> None:
        """Take up what an earlier process persisted."""
        for field_name, packed in fields.items():
            if packed:
                number, chunk = _unpack_chunk(packed)
                window = self._windows.setdefault(_window_name(field_name), _Window())
                window.chunks[number] = {**chunk, **window.chunks.get(number, {})}
        for window in self._windows.values():
            window.drop_old()

    def forget(self, before_ms: int) -> None:
        """Drop windows whose newest entry is older than this stream time. Never above the oldest entry in hand."""
        for name, window in list(self._windows.items()):
            if window.newest_ms() < before_ms:
                self._dropped.update(_field_name(name, number) for number in window.chunks)
                del self._windows[name]


def _new_chunk(window: _Window, number: int, header: Header) -> _Chunk:
    if window.chunks and number < window.lowest_chunk:
        raise RefusedError(
            pb.ReasonCode.REASON_REPLAYED,
            f"sequence {header.sequence} of {header.producer} lies below the window, "
            f"which begins at {window.lowest_chunk * CHUNK_SEQUENCES}",
        )
    chunk = window.chunks[number] = {}
    window.drop_old()
    return chunk


def _judge_repeat(seen: _Seen, met: _Seen, header: Header, entry_id: str) -> bool:
    if met == seen:
        return True
    first = f"sequence {header.sequence} of {header.producer} was met as entry {seen.entry_ms}-{seen.entry_count}"
    if met.digest == seen.digest:
        raise RefusedError(pb.ReasonCode.REASON_REPLAYED, f"{first} and again as {entry_id}")
    raise RefusedError(pb.ReasonCode.REASON_DUPLICATE, f"{first} and, sealed anew, as {entry_id}")


def _entry_numbers(entry_id: str) -> tuple[int, int]:
    milliseconds, _, count = entry_id.partition("-")
    return int(milliseconds), int(count or 0)


def _field_name(name: _WindowName, number: int) -> str:
    role, producer, incarnation, target = name
    # Names may hold any character: their lengths keep (a, b/c) and (a/b, c) apart.
    return f"{role}/{incarnation:016x}/{number % NUM_CHUNKS}/{len(producer)}/{producer}/{target}"


def _window_name(field_name: str) -> _WindowName:
    role, incarnation, _, length, rest = field_name.split("/", 4)
    producer, target = rest[: int(length)], rest[int(length) + 1 :]
    return role, producer, int(incarnation, 16), target


def _pack_chunk(number: int, chunk: _Chunk) -> bytes:
    rows = (_SEEN.pack(sequence, s.entry_ms, s.entry_count, s.digest) for sequence, s in chunk.items())
    return _NUMBER.pack(number) + b"".join(rows)


def _unpack_chunk(packed: bytes) -> tuple[int, _Chunk]:
    (number,) = _NUMBER.unpack_from(packed)
    rows = _SEEN.iter_unpack(packed[_NUMBER.size :])
    return number, {sequence: _Seen(ms, count, digest) for sequence, ms, count, digest in rows}
