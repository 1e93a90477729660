"""What the loop drives: something that can be asked, and that hears its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Work(Protocol):
    """One kind of load. Times are in seconds, of the clock that the loop was given."""

    async def send(self, due_s: Sequence[float]) -> None:
        """Make one request for each; those that Redis does not take are counted and not made again."""

    async def listen(self) -> None:
        """Hear answers, without end."""

    @property
    def num_waiting(self) -> int:
        """Requests that were sent and have not been answered."""
