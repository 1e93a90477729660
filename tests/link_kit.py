"""The trainer's end of a link with nobody behind it; each test says what of it answers."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.session.exchange import Exchange
from esper.tolaria.boundary import Boundary
from esper.tolaria.rows.rows import Rows

ORDER = pb.CommitOrder(commit=pb.BarrierCommit(round=3, effective_step=20), entry_id="9-0")


class Unanswered:
    """Takes what it is told while it is `alive`, and no rows."""

    alive, num_starts, decided, doorbell = True, 1, "", b"\1"

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


class Mortal(Unanswered):
    """Dies of the first things that it is told, so many times; then it answers."""

    def __init__(self, num_deaths: int = 0) -> None:
        self.said: list[str] = []
        self.beats: list[pb.Heartbeat] = []
        self.begun: list[pb.Begin] = []
        self.judged: list[int] = []
        self.num_deaths = num_deaths
        self.answers: list[pb.ToTrainer] = []

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        self.said.append(message.WhichOneof("message") or "")
        self.beats += [message.heartbeat] * message.HasField("heartbeat")
        self.begun += [message.begin] * message.HasField("begin")
        self.judged += [message.record.judged.round] * message.record.HasField("judged")
        if message.HasField("recall"):
            self.answers = [pb.ToTrainer(recalled=pb.Recalled(orders=[ORDER]))]
            if self.num_deaths:
                self.num_deaths -= 1
            else:
                self.answers.append(pb.ToTrainer(recalled=pb.Recalled(is_last=True)))

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        answers, self.answers = self.answers, []
        self.alive = not answers or answers[-1].recalled.is_last
        return answers


def exchange(link: Mortal) -> Exchange:
    return Exchange(link, Boundary(), Rows(incarnation=7))
