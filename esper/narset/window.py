"""Groups what arrives into windows of 32, and says when a partial one must close."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

WINDOW = 32
MOST_HELD = 64  # closed windows that may wait for their last message to fit; then the open one closes early

Item = TypeVar("Item")


@dataclass(slots=True)
class Window(Generic[Item]):
    """Up to 32 items. A message counts in the window in which its first item falls."""

    items: list[Item] = field(default_factory=list)
    num_messages: int = 0
    partial: bool = False


class Windows(Generic[Item]):
    """Windows in hand. They are taken all at once, so that every message they hold is settled whole.

    Knows no clock: the caller says what time it is, in seconds of any clock that never goes back.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._windows: list[Window[Item]] = []
        self._since_s = 0.0

    def add(self, items: Sequence[Item], now_s: float) -> None:
        """Take in one message's items; a message without any only waits to be settled."""
        if not self._windows:
            self._since_s = now_s
        window = self._opened() if items or not self._windows else self._windows[-1]
        window.num_messages += 1
        left = WINDOW - len(window.items)
        window.items.extend(items[:left])
        for start in range(left, len(items), WINDOW):
            self._windows.append(Window(list(items[start : start + WINDOW])))

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until what is in hand must be taken; 0: now; None: nothing is in hand."""
        if not self._windows:
            return None
        if len(self._windows[-1].items) == WINDOW or len(self._windows) > MOST_HELD:
            return 0.0
        return max(0.0, self._since_s + self._patience_s - now_s)

    def take(self) -> list[Window[Item]]:
        """Close and hand over all that is in hand; only the last one can be partial."""
        taken, self._windows = self._windows, []
        if taken:
            taken[-1].partial = len(taken[-1].items) < WINDOW
        return taken

    def _opened(self) -> Window[Item]:
        if not self._windows or len(self._windows[-1].items) == WINDOW:
            self._windows.append(Window())
        return self._windows[-1]
