"""What was seen of one producer's sequences: exactly for the newest, below these as the list of those never seen."""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import chain

CHUNK = 64
SPAN = 4096
"""At least so many of the newest sequences keep their whole record: which entry, and the start of its seal. More than a
consumer holds back unsettled, so that what is delivered to it again is known."""
STRIDE = 512
"""How far the floor moves at a time: seldom, as every record is looked at then."""
NUM_SLOTS = 80
"""Fields for chunks, used round and round; more than the SPAN + STRIDE + CHUNK sequences of a window ever fill."""
MAX_GAPS = 4096
"""Stretches of sequences never seen; above it the lowest count as seen, so what is in them will be refused."""
MAX_KEPT = 4096
"""Of what is not settled yet the newest so many keep their records below the floor."""

RECORD = struct.Struct(">QQ8s")  # entry: milliseconds, count; first bytes of the seal
_NUMBER = struct.Struct(">Q")
_SUMMARY = struct.Struct(">QI")  # floor, how many numbers the gaps are; then these, then what is kept
_KEPT = struct.Struct(f">Q{RECORD.size}s")
_NOTHING = bytes(RECORD.size)
_NOTHINGS = [_NOTHING] * CHUNK
_SUMMARY_SLOT = NUM_SLOTS

BELOW = b"below the window"


class Window:
    """Sequences of one (role, producer, incarnation, target). Takes records as they come, says what it knew before.

    At and above `floor` a sequence is seen if it has a record. Below it, all are seen but those in `gaps`; `kept` has
    their records only until they are settled. A first delivery is thus never mistaken for a replay, however far its
    producer has gone on meanwhile, and what a window takes doesn't grow with what was sent.
    """

    __slots__ = (
        "_dirty",
        "ceiling",
        "floor",
        "fresh",
        "gaps",
        "kept",
        "persisted",
        "records",
        "slid",
        "summary_changed",
    )

    def __init__(self, dirty: list[Window]) -> None:
        self._dirty = dirty
        self.records: dict[int, bytes] = {}
        self.kept: dict[int, bytes] = {}
        self.fresh: list[int] = []  # noted since what is new was last handed out
        self.floor, self.ceiling = 0, SPAN + STRIDE
        self.gaps: list[int] = []  # from, to (not included), from, to, ... in order: odd places lie inside a gap
        self.persisted: dict[int, bytes] = {}  # by slot, as last handed out or loaded
        self.slid = self.summary_changed = False

    def note(self, sequence: int, record: bytes) -> bytes | None:
        """Remember a record; None: first time. Else what was there before, BELOW where that isn't known any more."""
        if sequence >= self.ceiling:
            self.slide(sequence)
        if sequence < self.floor:
            return self._note_below(sequence, record)
        seen = self.records.setdefault(sequence, record)
        if seen is not record:
            return seen
        self._mark(sequence)
        return None

    def _mark(self, sequence: int) -> None:
        if not self.fresh:
            self._dirty.append(self)
        self.fresh.append(sequence)

    def touch(self) -> None:
        """Have it looked at when changes are next handed out."""
        if not any(each is self for each in self._dirty):
            self._dirty.append(self)

    def _note_below(self, sequence: int, record: bytes) -> bytes | None:
        seen = self.kept.get(sequence)
        if seen is not None:
            return seen
        at = bisect_right(self.gaps, sequence)
        if at % 2 == 0:
            return BELOW
        start, end = self.gaps[at - 1 : at + 1]
        left = [start, sequence] if start < sequence else []
        right = [sequence + 1, end] if sequence + 1 < end else []
        self.gaps[at - 1 : at + 1] = left + right
        del self.gaps[: -2 * MAX_GAPS]
        self.kept[sequence] = record
        self.summary_changed = True
        self._mark(sequence)
        if len(self.kept) > 2 * MAX_KEPT:
            self._drop()
        return None

    def slide(self, sequence: int) -> None:
        """Move the floor so far that the sequence has room. Of what falls below it the gaps are remembered."""
        start, floor = max(self.floor, 1), (sequence - SPAN) // CHUNK * CHUNK
        self.floor, self.ceiling = floor, floor + SPAN + STRIDE
        fallen = self._seen_between(start, floor)
        if len(fallen) < floor - start:
            self._add_gaps(start, fallen)
        self.kept |= {seen: self.records.pop(seen) for seen in fallen}
        self.slid = self.summary_changed = True
        self._drop()

    def _seen_between(self, start: int, end: int) -> list[int]:
        """What has a record there, in order: mostly a ninth of all there are, but a producer may leap."""
        if end - start < len(self.records):
            return [sequence for sequence in range(start, end) if sequence in self.records]
        return sorted(seen for seen in self.records if start <= seen < end)

    def _add_gaps(self, start: int, fallen: list[int]) -> None:
        for seen in [*fallen, self.floor]:
            if start < seen:
                self._add_gap(start, seen)
            start = seen + 1
        del self.gaps[: -2 * MAX_GAPS]

    def _add_gap(self, start: int, end: int) -> None:
        if self.gaps and self.gaps[-1] == start:
            self.gaps[-1] = end
        else:
            self.gaps += (start, end)

    def _drop(self) -> None:
        """Forget records below the floor, but those that are not settled yet."""
        fresh = set(self.fresh[-MAX_KEPT:])
        if len(self.fresh) > MAX_KEPT:
            self.fresh = [sequence for sequence in self.fresh if sequence >= self.floor or sequence in fresh]
        self.kept = {seen: self.kept[seen] for seen in fresh.intersection(self.kept)}

    def newest_ms(self) -> int:
        """The time of the newest entry met."""
        return int(RECORD.unpack(max(chain(self.records.values(), self.kept.values()), default=_NOTHING))[0])

    def changes(self) -> dict[int, bytes]:
        """Slots to be persisted, with values; empty: to be deleted."""
        slots, lowest = dict[int, bytes](), self.floor // CHUNK
        if self.slid:
            used = {_NUMBER.unpack_from(value)[0] for slot, value in self.persisted.items() if slot != _SUMMARY_SLOT}
            slots = {number % NUM_SLOTS: b"" for number in used if number < lowest}
        if self.summary_changed:
            slots[_SUMMARY_SLOT] = self._summary()
        if self.fresh:
            start, last = min(self.fresh), max(self.fresh)
            if (number := start // CHUNK) == last // CHUNK >= lowest:  # mostly: a message or two
                slots[number % NUM_SLOTS] = self._chunk(number, start, last + 1)
                return slots
            for number in {sequence // CHUNK for sequence in self.fresh}:
                if number >= lowest:
                    first = number * CHUNK
                    slots[number % NUM_SLOTS] = self._chunk(number, max(start, first), min(last + 1, first + CHUNK))
        return slots

    def settle(self, slots: dict[int, bytes]) -> None:
        """What was handed out is persisted now."""
        for slot, value in slots.items():
            if value:
                self.persisted[slot] = value
            else:
                self.persisted.pop(slot, None)
        self.fresh.clear()
        self.slid = self.summary_changed = False

    def take_up(self, slot: int, value: bytes) -> None:
        """Read one slot back. In any order."""
        self.persisted[slot] = value
        if slot == _SUMMARY_SLOT:
            self._take_up_summary(value)
            return
        first = _NUMBER.unpack_from(value)[0] * CHUNK
        packed = value[_NUMBER.size :]
        for at in range(0, len(packed), RECORD.size):
            record = packed[at : at + RECORD.size].ljust(RECORD.size, b"\0")
            if record != _NOTHING:
                self.records[first + at // RECORD.size] = record

    def _chunk(self, number: int, start: int, end: int) -> bytes:
        """What was handed out of it last, and over that its records from `start` on: packed anew is what is fresh."""
        head = _NUMBER.pack(number)
        before = self.persisted.get(number % NUM_SLOTS, head)
        if not before.startswith(head):
            before = head  # of the slot's chunk before
        at = _NUMBER.size + (start - number * CHUNK) * RECORD.size
        rows = map(self.records.get, range(start, end), _NOTHINGS)
        return b"".join((before[:at].ljust(at, b"\0"), *rows, before[at + (end - start) * RECORD.size :]))

    def _summary(self) -> bytes:
        gaps = struct.pack(f">{len(self.gaps)}Q", *self.gaps)
        kept = b"".join(_KEPT.pack(*row) for row in sorted(self.kept.items()))
        return _SUMMARY.pack(self.floor, len(self.gaps)) + gaps + kept

    def _take_up_summary(self, value: bytes) -> None:
        self.floor, num_numbers = _SUMMARY.unpack_from(value)
        self.ceiling = self.floor + SPAN + STRIDE
        kept_at = _SUMMARY.size + 8 * num_numbers
        self.gaps = list(struct.unpack_from(f">{num_numbers}Q", value, _SUMMARY.size))
        self.kept = dict(_KEPT.iter_unpack(value[kept_at:]))
