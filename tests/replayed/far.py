"""A trainer's end of a link to a runtime in another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from esper.leyline import contracts as pb
from esper.session.replay_link import all_stored
from tests.replayed.view import View

HEARD = ("vote", "applied", "record", "recall", "begin", "statement", "farewell")


@dataclass(frozen=True)
class Call:
    """What a trainer asks for, and how it stands."""

    what: str  # attend, start or poll
    view: View
    beat: pb.Heartbeat | None = None
    timeout_s: float = 0.0


@dataclass(frozen=True)
class Told:
    """What it says, and waits for no answer to."""

    message: pb.ToRuntime
    view: View


@dataclass(frozen=True)
class Answer:
    """What it hears."""

    alive: bool
    num_starts: int
    decided: str
    said: list[pb.ToTrainer] = field(default_factory=list)


@dataclass(frozen=True)
class Away:
    """It goes where it waits for the other rank, and asks for no answer."""


@dataclass(frozen=True)
class Ended:
    """Its last word. `why`: empty where it ended in order. `sums`: of each step that it has done."""

    why: str = ""
    report: pb.WorkerReport | None = None
    sums: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


class FarLink:
    """What has no effect there is not said: whether the clock had it said would make of one seed many runs."""

    doorbell = b"\1"

    def __init__(self, line: Connection) -> None:
        self._line, self._step, self._said = line, -1, list[pb.ToTrainer]()
        self.portray: Callable[[], pb.Heartbeat] | None = None
        self.look: Callable[[], View] = View
        self.alive, self.num_starts, self.decided = False, 0, ""
        self._ask(Call("attend", View()))

    def _ask(self, call: Call) -> None:
        self._line.send(call)
        answer: Answer = self._line.recv()
        self.alive, self.num_starts, self.decided = answer.alive, answer.num_starts, answer.decided
        self._said += answer.said

    def start(self) -> None:
        self._ask(Call("start", self.look()))

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        beat = None if self.portray is None else self.portray()
        step = 0 if beat is None else beat.step
        if timeout_s or step != self._step:
            self._step = step
            self._ask(Call("poll", self.look(), beat, timeout_s=timeout_s))
        said, self._said = self._said, []
        return said

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        what = message.WhichOneof("message")
        asks = what == "heartbeat" and message.heartbeat.barrier_due and not message.heartbeat.busy
        if self.alive and (asks or what in HEARD):
            self._line.send(Told(message, self.look()))

    def rows_lane_free(self) -> bool:
        return True

    def send_rows(self, message: pb.ToRuntime) -> None:
        self._said.append(all_stored(message.rows))

    def close(self, timeout_s: float = 5.0) -> None:
        self.alive = False
