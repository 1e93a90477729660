"""Sequences that a producer used and that never came: how the loss of acknowledged messages is told by name."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from esper.leyline.envelope import Header

MAX_PRODUCERS = 4096
_HIGHEST = struct.Struct(">Q")


class Gaps:
    """The highest sequence met of each (role, producer, incarnation, target). Knows nothing of streams or of time.

    For a consumer that sees a stream in its order and from its beginning: sequences are contiguous from 1, so a jump
    names what the stream should hold and does not.
    """

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self._changed: set[str] = set()
        self._complete = True  # False: producers were forgotten, so one not known may have said much before

    def note(self, header: Header) -> range:
        """The sequences skipped just before this one, now known to be missing; mostly none."""
        name = producer_name(header)
        before = self._highest.pop(name, None if self._complete else header.sequence - 1) or 0
        self._highest[name] = max(before, header.sequence)  # at the end: those that have said nothing for long go first
        if header.sequence <= before:
            return range(0)
        self._changed.add(name)
        self._bound()
        return range(before + 1, header.sequence)

    def changed(self) -> dict[str, bytes]:
        """Fields to be persisted with the effect of what was noted since the last call; empty bytes: to be deleted."""
        fields = {name: _HIGHEST.pack(self._highest[name]) if name in self._highest else b"" for name in self._changed}
        self._changed.clear()
        return fields

    def load(self, fields: Mapping[str, bytes]) -> None:
        """Take up what is persisted, and only that."""
        self._highest = {name: _HIGHEST.unpack(value)[0] for name, value in fields.items() if value}
        self._changed.clear()
        self._complete = len(self._highest) < MAX_PRODUCERS

    def _bound(self) -> None:
        if len(self._highest) > MAX_PRODUCERS:
            oldest = next(iter(self._highest))
            del self._highest[oldest]
            self._changed.add(oldest)
            self._complete = False


def producer_name(header: Header) -> str:
    """Names may hold any character: their lengths keep (a, b/c) and (a/b, c) apart."""
    return f"{header.role.value}/{header.incarnation:016x}/{len(header.producer)}/{header.producer}/{header.target}"
