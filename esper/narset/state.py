"""What a tier keeps in Redis between two settlements: a version, a sequence, and the sequence windows of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_hex

from esper.narset.sequences import SequenceWindow

VERSION = "version"
SEQUENCE = "sequence"
LOST = "lost"
MOST_PER_MS = 1_000
"""Numbers that a tier can have used in a millisecond."""


class TierState:
    """Loaded from a hash, changed in memory, put back with the settlement that it belongs to. Knows no Redis."""

    def __init__(self, prefix: str, fields: Mapping[bytes, bytes]) -> None:
        self._prefix = prefix
        self._touched: set[str] = set()
        self._dropped: set[str] = set()
        self._forgets_loss = False
        self.expected = fields.get(VERSION.encode())
        """The version that the hash must still have when the changes are put back; None: the field must be absent."""
        self.sequence = int(fields.get(SEQUENCE.encode(), b"0"))
        self.windows = {
            name.decode().removeprefix(prefix): SequenceWindow(data)
            for name, data in fields.items()
            if name.startswith(prefix.encode()) and data
        }
        self.lost_ms = int(fields.get(LOST.encode(), b"0"))
        """If not 0: of what was on record until then something may be forgotten."""
        self.is_restored = bool(self.lost_ms) and self.expected is None
        """Whether that was found just now: what is known of it goes on record with the next change."""
        if self.is_restored:
            self._touched |= self.windows.keys()

    def window(self, name: str) -> SequenceWindow:
        """The window of an input, to be changed."""
        self._touched.add(name)
        window = self.windows.get(name)
        if window is None:
            self._dropped.discard(name)
            window = self.windows[name] = SequenceWindow(begins_anywhere=self.lost_ms > 0)
        return window

    def drop(self, name: str) -> None:
        """Forget an input that will say nothing any more: with the next change it goes from the record too."""
        del self.windows[name]
        self._touched.discard(name)
        self._dropped.add(name)

    def forget_loss(self) -> None:
        """With the next change it goes from the record, too: of whoever is met first from then on all was to be met."""
        self.lost_ms, self._forgets_loss = 0, True

    def next_sequence(self) -> int:
        """The next number of what this tier writes, from 1."""
        self.sequence += 1
        return self.sequence

    def pass_used(self) -> None:
        """Where the record was lost, go on above all numbers that can have been used, whoever has used them."""
        if self.is_restored:
            self.sequence = max(self.sequence, self.lost_ms * MOST_PER_MS)

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
        if self.lost_ms or self._forgets_loss:
            fields[LOST] = str(self.lost_ms).encode() if self.lost_ms else b""
            self._forgets_loss = False
        return fields | {VERSION: self.expected, SEQUENCE: str(self.sequence).encode()}
