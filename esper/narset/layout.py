"""Where the numbers lie in packets that are the same bytes but for these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from esper.leyline import contracts as pb
from esper.leyline.validate.telemetry import NUM_PACKETS

VARINT, DOUBLE, TEXT = 0, 1, 2  # how a field's value is laid out
_VERSION, _TIME, _SOURCE, _LEVEL, _SEQUENCE, _STEP, _VALUES = 1, 3, 4, 5, 6, 7, 8
_MORE, _DIGIT = 0x80, 0x7F
MOST_BYTES = 9  # of a number: below 2**63
DOUBLE_BYTES = 8
MOST_ROW_BYTES = 1024  # what is longer is worth its parsing, and would be compared with a longer number
_WEIGHTS = np.left_shift(np.uint64(1), np.arange(MOST_BYTES, dtype=np.uint64) * np.uint64(7))
_NUMBERS = frozenset({(_TIME, VARINT), (_SEQUENCE, VARINT), (_STEP, VARINT)})
_ALIKE = frozenset({(_VERSION, VARINT), (_SOURCE, TEXT), (_LEVEL, VARINT)})


class Found(NamedTuple):
    """A field on the wire."""

    number: int
    kind: int
    start: int  # of its tag
    value: int
    end: int


def fields(data: bytes, at: int, end: int) -> Iterator[Found]:
    """The fields of a message that was parsed before. ValueError: it holds a kind that no message here has."""
    while at < end:
        start = at
        tag, at = varint(data, at)
        kind = tag & 7
        value = at
        if kind == VARINT:
            _, at = varint(data, at)
        elif kind == DOUBLE:
            at += 8
        elif kind == TEXT:
            length, value = varint(data, at)
            at = value + length
        else:
            raise ValueError(f"field {tag >> 3} is of kind {kind}")
        yield Found(tag >> 3, kind, start, value, at)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and what comes after it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & _DIGIT) << shift
        if byte < _MORE:
            return number, at
        shift += 7


def is_number(data: bytes) -> bool:
    """Whether the bytes are one number, and nothing else."""
    return bool(data) and data[-1] < _MORE and all(byte >= _MORE for byte in data[:-1])


class Places(NamedTuple):
    """Where a row has its numbers, from and to which byte, by field; and the values by their names."""

    numbers: Mapping[int, tuple[int, int]]
    values: Mapping[str, int]


class Rows(NamedTuple):
    """The numbers of packets, one packet after the other; `values` is (packets, names)."""

    times_ns: NDArray[np.uint64]
    sequences: NDArray[np.uint64]
    steps: NDArray[np.uint64]
    values: NDArray[np.float64]


def _numbers_of(key: tuple[bytes, bytes], count: int) -> tuple[int, int]:
    same, pattern = (int.from_bytes(each * count, "little") for each in key)
    return same, pattern


class Layout:
    """Made of one packet that was found sound. What is the same bytes but for its numbers is as sound, if these are.

    A row is such a packet, with the bytes that lead up to it in its message.
    """

    __slots__ = ("_digits", "_many", "_one", "_sequence", "_values", "_weights", "key", "level", "names", "source")

    def __init__(self, packet: pb.TelemetryPacket, row: bytes, places: Places) -> None:
        self.names, self.level, self.source = tuple(places.values), packet.level, packet.source_subsystem
        self._sequence = places.numbers[_SEQUENCE]
        spans = [range(*places.numbers.get(each, (0, 0))) for each in (_TIME, _SEQUENCE, _STEP)]
        self._digits = np.array([at for span in spans for at in span], np.intp)
        self._weights = np.zeros((len(self._digits), len(spans)), np.uint64)
        for column, span in enumerate(spans):
            self._weights[np.isin(self._digits, span), column] = _WEIGHTS[: len(span)]
        self._values = np.array([at + each for at in places.values.values() for each in range(DOUBLE_BYTES)], np.intp)
        same = bytearray(b"\xff" * len(row))
        for first, end in places.numbers.values():
            same[first:end] = bytes([_MORE]) * (end - first)  # as many groups
        for first in places.values.values():
            same[first : first + DOUBLE_BYTES] = bytes(DOUBLE_BYTES)
        self.key = bytes(same), bytes(mask & byte for mask, byte in zip(same, row, strict=True))
        self._one = _numbers_of(self.key, 1)
        self._many = 0, 0

    @property
    def size(self) -> int:
        """Bytes of a row."""
        return len(self.key[0])

    def holds(self, rows: bytes, count: int) -> bool:
        """Whether these bytes, enough for so many rows, are rows of this: compared as one number, 5 us for 32."""
        if count == 1:
            same, pattern = self._one
        else:
            self._many = same, pattern = self._many if self._many[0] else _numbers_of(self.key, NUM_PACKETS)
            if count < NUM_PACKETS:
                pattern &= (1 << 8 * len(rows)) - 1  # the first rows are the lowest bytes
        return int.from_bytes(rows, "little") & same == pattern

    def sequence(self, row: bytes) -> int:
        """Of a single row."""
        return varint(row, self._sequence[0])[0]

    def sequences(self, rows: bytes) -> NDArray[np.uint64]:
        """Of rows."""
        first, end = self._sequence
        groups = (self._table(rows)[:, first:end] & np.uint8(_DIGIT)).astype(np.uint64)
        found: NDArray[np.uint64] = groups @ _WEIGHTS[: end - first]
        return found

    def read(self, rows: bytes) -> Rows:
        """All their numbers; 0 of a field that the packets leave out."""
        table = self._table(rows)
        groups = (table.take(self._digits, axis=1) & np.uint8(_DIGIT)).astype(np.uint64)
        times_ns, sequences, steps = (groups @ self._weights).T
        return Rows(times_ns, sequences, steps, table.take(self._values, axis=1).view("<f8"))

    def _table(self, rows: bytes) -> NDArray[np.uint8]:
        return np.frombuffer(rows, np.uint8).reshape(-1, self.size)


def layout_of(packet: pb.TelemetryPacket, row: bytes, begins: int) -> Layout | None:
    """Of a sound packet that begins there in its row; None where it has more to it than numbers."""
    if len(row) > MOST_ROW_BYTES:
        return None
    try:
        return Layout(packet, row, _places(row, begins))
    except ValueError:
        return None


def _places(row: bytes, begins: int) -> Places:
    """Of the numbers in a row. ValueError where there is anything else in it, a field twice, or too few of them."""
    numbers, values, met = dict[int, tuple[int, int]](), dict[str, int](), set[int]()
    for found in fields(row, begins, len(row)):
        kind = found.number, found.kind
        if kind == (_VALUES, TEXT):
            name, at = _entry(row, found)
            if name in values:
                raise ValueError(f"the value {name} stands there twice")
            values[name] = at
            continue
        if found.number in met or kind not in _NUMBERS | _ALIKE:
            raise ValueError(f"field {found.number} stands there twice, or is no number")
        met.add(found.number)
        if kind in _NUMBERS:
            numbers[found.number] = found.value, found.end
    if not values or _SEQUENCE not in numbers or any(end - first > MOST_BYTES for first, end in numbers.values()):
        raise ValueError("a row has values, a number of its own, and no number that is too long")
    return Places(numbers, values)


def _entry(row: bytes, found: Found) -> tuple[str, int]:
    """The name of a value and its place. ValueError where there is anything else in the entry, or less."""
    name, value = fields(row, found.value, found.end)
    if (name.number, name.kind, value.number, value.kind) != (1, TEXT, 2, DOUBLE):
        raise ValueError("an entry is a name and a double")
    return row[name.value : name.end].decode(), value.value
