"""Which steps an optimizer may take. Knows neither torch nor commands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """Steps [first, end); no end: unbounded. A clip norm of 0 means no clipping."""

    first: int
    end: int | None
    grad_clip_norm: float = 0.0

    def covers(self, step: int) -> bool:
        return self.first <= step and (self.end is None or step < self.end)


DEFAULT = Lease(0, None)


class Leases:
    """The steps granted to one optimizer: all of them until the first grant, from then on only what was granted."""

    def __init__(self) -> None:
        self._granted: tuple[Lease, ...] = (DEFAULT,)

    def grant(self, lease: Lease, now: int) -> None:
        """Add a lease. It ends what was unbounded; grants that are over by step `now` are forgotten.

        The same lease granted again changes nothing.
        """
        if lease not in self._granted:
            self._granted = (*(old for old in self._granted if old.end is not None and old.end > now), lease)

    def at(self, step: int) -> Lease | None:
        """The newest lease that covers this step."""
        return next((lease for lease in reversed(self._granted) if lease.covers(step)), None)

    def granted(self) -> tuple[Lease, ...]:
        return self._granted

    def put_back(self, granted: tuple[Lease, ...]) -> None:
        self._granted = granted
