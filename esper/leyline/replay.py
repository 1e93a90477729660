"""Which envelopes have been seen: a redelivery of the same entry is legal, the same envelope anywhere else is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.envelope import Header
from esper.leyline.window import BELOW, RECORD, Window

FORGET_AFTER_MS = 300_000
FINGERPRINT_BYTES = 8
"""The start of a seal stands for the envelope: the seal covers every byte before it."""

WindowName: TypeAlias = tuple[str, str, int, str]


class ReplayGuard:
    """Windows over what was opened, per producer and target. Knows nothing of Redis: the caller persists them.

    `load` the whole hash at the start; put `changed()` into the settlement that holds the effects. Where a settlement
    was refused, `load` again and open the same deliveries again: what was noted and not persisted is forgotten. After
    a `load`, an entry reported as redelivered has had its effect. For a consumer with a group of its own: a group whose
    consumers take over from one another keeps its record in Redis alone (Settlement.once).
    """

    def __init__(self) -> None:
        self._windows: dict[WindowName, Window] = {}
        self._dirty: list[Window] = []
        self._names: dict[int, WindowName] = {}
        self._dropped: dict[str, bytes] = {}
        self.generation = 0  # another one: windows handed out before are void

    def note(self, header: Header, entry_id: str, seal: bytes) -> bool:
        """Remember an authenticated envelope; True: the same entry was here before."""
        entry_ms, entry_count = entry_order(entry_id)
        record = RECORD.pack(entry_ms, entry_count, seal[:FINGERPRINT_BYTES])
        window = self.window_of(header)
        seen = window.note(header.sequence, record)
        return seen is not None and redelivered(seen, record, header, window)

    def window_of(self, header: Header) -> Window:
        """Where sequences of this header's producer and target are noted; good while `generation` stays."""
        return self.window_named((header.role.value, header.producer, header.incarnation, header.target))

    def window_named(self, name: WindowName) -> Window:
        """The same by role, producer, incarnation and target."""
        window = self._windows.get(name)
        return self._new(name) if window is None else window

    def changed(self) -> dict[str, bytes]:
        """Fields to be persisted with the effect of what was noted since the last call; empty bytes: to be deleted.

        Taken as persisted from now on; where it wasn't, `load`.
        """
        fields, self._dropped = self._dropped, {}
        for window in self._dirty:
            name = self._names.get(id(window))
            if name is not None:
                slots = window.changes()
                for slot, value in slots.items():
                    fields[field_name(name, slot)] = value
                window.settle(slots)
        self._dirty.clear()
        return fields

    def unsettled(self) -> dict[str, bytes]:
        """What `changed` would hand out, and still will."""
        fields = dict(self._dropped)
        for window in self._dirty:
            name = self._names.get(id(window))
            if name is not None:
                fields.update((field_name(name, slot), value) for slot, value in window.changes().items())
        return fields

    def load(self, fields: Mapping[str, bytes]) -> None:
        """Take up all that is persisted, and only that."""
        self._windows.clear()
        self._names.clear()
        self._dirty.clear()
        self._dropped = {}
        self.generation += 1
        for field, value in fields.items():
            if value:
                name, slot = window_name(field)
                window = self._windows.get(name)
                (self._new(name) if window is None else window).take_up(slot, value)

    def forget(self, before_ms: int) -> None:
        """Drop windows whose newest entry is older than this stream time and than the 300 s before the newest entry.

        Never above the oldest entry that is pending anywhere in the group: it may be a copy of what is forgotten. What
        is unread yet is younger than what was read; a copy there of what is forgotten here is refused as stale.
        """
        newest = {name: window.newest_ms() for name, window in self._windows.items()}
        before_ms = min(before_ms, max(newest.values(), default=0) - FORGET_AFTER_MS)
        for name in [name for name, newest_ms in newest.items() if newest_ms < before_ms]:
            window = self._windows.pop(name)
            del self._names[id(window)]
            self._dropped.update((field_name(name, slot), b"") for slot in window.persisted)
            self.generation += 1

    def _new(self, name: WindowName) -> Window:
        window = self._windows[name] = Window(self._dirty)
        self._names[id(window)] = name
        return window


def redelivered(seen: bytes, met: bytes, header: Header, window: Window) -> bool:
    """True: what the window knew of the sequence is this very entry. Anything else is refused."""
    if seen != met:
        raise refusal(seen, met, header, window.floor)
    return True


def refusal(seen: bytes, met: bytes, header: Header, floor: int) -> RefusedError:
    """Why an envelope is not let in whose sequence was seen with another record."""
    who = f"sequence {header.sequence} of {header.producer}"
    if seen is BELOW:
        return RefusedError(
            pb.ReasonCode.REASON_REPLAYED, f"{who} was met before; it lies below the window, which begins at {floor}"
        )
    (seen_ms, seen_count, before), (ms, count, now) = RECORD.unpack(seen), RECORD.unpack(met)
    if now == before:
        detail = f"{who} was met as entry {seen_ms}-{seen_count} and again as {ms}-{count}"
        return RefusedError(pb.ReasonCode.REASON_REPLAYED, detail)
    detail = f"{who} was met as entry {seen_ms}-{seen_count} and, sealed anew, as {ms}-{count}"
    return RefusedError(pb.ReasonCode.REASON_DUPLICATE, detail)


def field_name(name: WindowName, slot: int) -> str:
    """Where a slot of a window is persisted. Names may hold any character: lengths keep (a, b/c) and (a/b, c) apart."""
    role, producer, incarnation, target = name
    return f"{role}/{incarnation:016x}/{slot}/{len(producer)}/{producer}/{target}"


def window_name(field: str) -> tuple[WindowName, int]:
    """The window and slot of a field."""
    role, incarnation, slot, length, rest = field.split("/", 4)
    producer, target = rest[: int(length)], rest[int(length) + 1 :]
    return (role, producer, int(incarnation, 16), target), int(slot)
