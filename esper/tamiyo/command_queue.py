"""Commands that wait to be judged, in log order, and how far each log is judged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from esper.leyline import contracts as pb
from esper.leyline.entries import LAST_ID, entry_order
from esper.tamiyo.judge import COMMANDS, OPTIMIZER, Waiting
from esper.tamiyo.outcome import Entry

MAX_COMMANDS = 256
"""Judged in one round, so that a commit stays far below a frame's cap; the others wait for the next one."""
MOST_WAITING = 1_000
"""Commands of one log in hand; further ones stay in Redis. Of these at least a round's worth is judged at a time."""


class CommandQueue:
    """Both logs of commands, as far as they were read. Knows nothing of rounds."""

    def __init__(self) -> None:
        self._waiting: dict[Entry, Waiting] = {}
        self.positions = {COMMANDS: "", OPTIMIZER: ""}
        self._refused = {COMMANDS: "", OPTIMIZER: ""}

    def __len__(self) -> int:
        return len(self._waiting)

    def is_judged(self, stream: str, entry_id: str) -> bool:
        """Whether an entry lies before what is judged."""
        return entry_order(entry_id) <= entry_order(self.positions[stream])

    def add(self, waiting: Waiting) -> None:
        """Keep a command; a repeat changes nothing."""
        self._waiting.setdefault((waiting.stream, waiting.entry_id), waiting)

    def pass_over(self, entry: Entry) -> None:
        """Note an entry that no round will name, so that the next commit lets go of it wherever it is held.

        Not the last id there is: where an administrator gives the stream ids again, all of them lie before it.
        """
        if entry[0] in self._refused and entry[1] != LAST_ID:
            self._refused[entry[0]] = max(self._refused[entry[0]], entry[1], key=entry_order)

    def has_room(self, stream: str) -> bool:
        """Whether more of this stream may be taken in: commands wait here for as long as no round judges them."""
        return sum(each.stream == stream for each in self._waiting.values()) < MOST_WAITING

    def turns(self) -> Iterator[Waiting]:
        """The next commands to judge, a round's worth; each counts as judged once it is handed over."""
        for waiting in islice(self._in_order(), MAX_COMMANDS):
            del self._waiting[(waiting.stream, waiting.entry_id)]
            self._pass(waiting)
            yield waiting

    def pass_refused(self) -> None:
        """Let the positions pass what was refused, but nothing that still waits."""
        for stream, refused in self._refused.items():
            waits = [each.order[:2] for each in self._waiting.values() if each.stream == stream]
            if all(entry_order(refused) < order for order in waits):
                self.positions[stream] = max(self.positions[stream], refused, key=entry_order)

    def judged_by(self, commit: pb.BarrierCommit) -> None:
        """Go on behind a commit."""
        self.positions = {COMMANDS: commit.commands_position, OPTIMIZER: commit.optimizer_position}

    def fall_back(self, newest: Mapping[str, str]) -> None:
        """The logs end there: what is added to them is not judged, also by a clock that is behind."""
        for positions in (self.positions, self._refused):
            for stream, position in positions.items():
                positions[stream] = min(position, newest.get(stream, position), key=entry_order)

    def lose(self, gone: Collection[Entry]) -> list[Waiting]:
        """Forget those that are no longer there; what waited of them, in the order of entries."""
        return [waiting for entry in sorted(gone) if (waiting := self._waiting.pop(entry, None)) is not None]

    def dismiss(self) -> list[Waiting]:
        """Count all that waits as judged, and forget it; in log order."""
        left = self._in_order()
        self._waiting.clear()
        for waiting in left:
            self._pass(waiting)
        return left

    def _pass(self, waiting: Waiting) -> None:
        self.positions[waiting.stream] = max(self.positions[waiting.stream], waiting.entry_id, key=entry_order)

    def _in_order(self) -> list[Waiting]:
        return sorted(self._waiting.values(), key=lambda each: each.order)


def entries_of(waiting: Iterable[Waiting]) -> list[Entry]:
    """Where these lie."""
    return [(each.stream, each.entry_id) for each in waiting]
