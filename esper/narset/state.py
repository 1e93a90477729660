"""What a tier keeps in Redis between two settlements: a version, a sequence, and the sequence windows of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_hex

from esper.narset.sequences import SequenceWindow

VERSION = "version"
SEQUENCE = "sequence"


class TierState:
    """Loaded from a hash, changed in memory, put back with the settlement that it belongs to. Knows no Redis."""

    def __init__(self, prefix: str, fields: Mapping[bytes, bytes]) -> None:
        self._prefix = prefix
        self._touched: set[str] = set()
        self._dropped: set[str] = set()
        self.expected = fields.get(VERSION.encode())
        """The version that the hash must still have when the changes are put back; None: the field must be absent."""
        self.sequence = int(fields.get(SEQUENCE.encode(), b"0"))
        self.windows = {
            name.decode().removeprefix(prefix): SequenceWindow(data)
            for name, data in fields.items()
            if name.startswith(prefix.encode()) and data
        }

    def window(self, name: str) -> SequenceWindow:
        """The window of an input, to be changed."""
        self._touched.add(name)
        window = self.windows.get(name)
        if window is None:
            self._dropped.discard(name)
            window = self.windows[name] = SequenceWindow()
        return window

    def drop(self, name: str) -> None:
        """Forget an input that will say nothing any more: with the next change it goes from the record too."""
        del self.windows[name]
        self._touched.discard(name)
        self._dropped.add(name)

    def next_sequence(self) -> int:
        """The next number of what this tier writes, from 1."""
        self.sequence += 1
        return self.sequence

    def changed(self) -> dict[str, bytes]:
        """Fields to put back, empty ones to be deleted; to be asked once per settlement.

        That settlement has to succeed, or the state be loaded again. The version is drawn, not counted: where Redis
        falls back, a count that another aggregator brings up again would pass for the one that was left.
        """
        self.expected = token_hex(8).encode()
        fields = {f"{self._prefix}{name}": self.windows[name].dump() for name in self._touched}
        fields |= {f"{self._prefix}{name}": b"" for name in self._dropped}
        self._touched.clear()
        self._dropped.clear()
        return fields | {VERSION: self.expected, SEQUENCE: str(self.sequence).encode()}
