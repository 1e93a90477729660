"""The trainer's end of a link with nobody behind it; each test says what of it answers."""

from __future__ import annotations

from esper.leyline import contracts as pb


class Unanswered:
    """Takes what it is told while it is `alive`, and no rows."""

    alive, num_starts, decided, bell = True, 1, "", b"\1"

    def start(self) -> None:
        self.num_starts += 1
        self.alive = True

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        return []

    def rows_lane_free(self) -> bool:
        return False

    def send_rows(self, message: pb.ToRuntime) -> None:
        """Never: the lane is not free."""

    def close(self, timeout_s: float = 5.0) -> None:
        self.alive = False
