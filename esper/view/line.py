"""One line of a plot: points in order, thinned where there are too many to be told apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

MOST_POINTS = 2_000
Point: TypeAlias = tuple[float, float]


@dataclass
class Line:
    """Points by x, which only grows: one at or before the last goes back there, and what was behind it is gone.

    Of too many points every second one goes, and of those that come every other, and so on; the newest is always there.
    """

    most: int = MOST_POINTS
    points: list[Point] = field(default_factory=list)
    _fresh: list[Point] = field(default_factory=list)
    _every: int = 1
    _num_since: int = 0  # points since the last one that stays

    def add(self, x: float, y: float) -> None:
        """A point; what is not finite is no point."""
        if not (math.isfinite(x) and math.isfinite(y)):
            return
        self.cut(x)
        if self._num_since:
            self.points.pop()
        self.points.append((x, y))
        self._fresh.append((x, y))
        self._num_since = (self._num_since + 1) % self._every
        if len(self.points) > self.most and not self._num_since:
            self.points, self._every, self._num_since = self.points[::2], 2 * self._every, 0

    def cut(self, x: float) -> None:
        """Forget what lies here and behind: a process that resumed trains these steps again."""
        if self.points and self.points[-1][0] >= x:
            self._num_since = 0
        for points in (self.points, self._fresh):
            while points and points[-1][0] >= x:
                points.pop()

    def ends_before(self, x: float) -> bool:
        """Whether a point here would be the last one, and cut none off."""
        return not self.points or self.points[-1][0] < x

    def fresh(self) -> list[Point]:
        """What was added since this was last asked. Whoever has the points before drops those from its first on."""
        taken, self._fresh = self._fresh, []
        return taken
