"""When each request is due: evenly, whatever became of those before it."""

from __future__ import annotations

from dataclasses import dataclass

MOST_AT_ONCE = 64


@dataclass(slots=True)
class Arrivals:
    """An open loop: the schedule does not wait for answers, so that a system that stands still is asked all the same.

    A request that is sent late was due when it was due, and its latency counts from there. Were it left out, or
    counted from its sending, the slow moments would be those with the fewest samples (coordinated omission: Tene, "How
    NOT to Measure Latency", 2013). Knows no clock: times are handed in, in seconds.
    """

    rate: float
    seconds: float
    began_s: float
    num_taken: int = 0

    @property
    def num(self) -> int:
        """Requests of the whole time."""
        return int(self.rate * self.seconds)

    @property
    def ends_s(self) -> float:
        return self.began_s + self.seconds

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until the next is due, or until the end where there is none left; None: it has ended."""
        due_s = self._due_s(self.num_taken) if self.num_taken < self.num else self.ends_s
        if self.num_taken >= self.num and now_s >= due_s:
            return None
        return max(0.0, due_s - now_s)

    def take(self, now_s: float) -> list[float]:
        """Times at which requests were due by now that nobody has taken: the oldest, so many as go together."""
        taken: list[float] = []
        while len(taken) < MOST_AT_ONCE and self.num_taken < self.num and self._due_s(self.num_taken) <= now_s:
            taken.append(self._due_s(self.num_taken))
            self.num_taken += 1
        return taken

    def num_due(self, now_s: float) -> int:
        """How many were due by now, taken or not."""
        return min(self.num, max(0, int((now_s - self.began_s) * self.rate) + 1)) if self.rate else 0

    def _due_s(self, number: int) -> float:
        return self.began_s + number / self.rate
