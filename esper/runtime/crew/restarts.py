"""When a process that has died is started again, and when it is given up."""

from __future__ import annotations

from collections import deque

from esper.runtime.crew.runfile import Restart


class Restarts:
    """The deaths of one process. Knows no process, and no clock but the times it is told.

    Those of its window count, once it has worked: what then ends it may pass, as where its Redis is away. Before that
    all of them do: what takes longer than a window to fail would be tried for ever.
    """

    def __init__(self, policy: Restart) -> None:
        self.policy = policy
        self.num_restarts = 0
        self.has_worked = False
        self._deaths: deque[float] = deque()

    def worked(self) -> None:
        """It was ready, and of a trainer: it has trained a step."""
        self.has_worked = True

    def died(self, now_s: float) -> float | None:
        """Seconds until it is started again: doubled with each death that counts. None: it is given up."""
        while self.has_worked and self._deaths and now_s - self._deaths[0] > self.policy.window_s:
            self._deaths.popleft()
        self._deaths.append(now_s)
        if len(self._deaths) > self.policy.limit:
            return None
        self.num_restarts += 1
        return min(self.policy.longest_s, self.policy.first_s * 2.0 ** (len(self._deaths) - 1))

    def forgive(self) -> None:
        """Forget its deaths: somebody has it started again."""
        self._deaths.clear()
