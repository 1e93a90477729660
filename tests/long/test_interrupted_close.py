"""A session that a signal ends starts no runtime for its last words; one that ends by itself does."""

from __future__ import annotations

import pytest
import torch

import esper
from esper.leyline import contracts as pb
from esper.session import Session
from tests.link_kit import Unanswered
from tests.seed_kit import Host


class Dead(Unanswered):
    """The trainer's end of a link whose runtime is gone; one that is started stores what it is told."""

    alive = False

    def __init__(self) -> None:
        self.answers: list[pb.ToTrainer] = []

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        answers, self.answers = self.answers, []
        return answers

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        if self.alive and message.HasField("farewell"):
            self.answers.append(pb.ToTrainer(report_stored=pb.ReportStored()))


@pytest.fixture
def link() -> Dead:
    return Dead()


@pytest.fixture
def run(link: Dead, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.delenv("ESPER_RUN", raising=False)
    host = Host()
    run = esper.attach(host, optimizer=torch.optim.SGD(host.parameters(), lr=0.1), sites=["body"], required=False)
    run.exchange.link = link
    return run


@pytest.mark.parametrize("signal", [KeyboardInterrupt(), SystemExit(130), SystemExit(143)])
def test_on_the_way_out_by_a_signal_no_runtime_is_started(run: Session, link: Dead, signal: BaseException) -> None:
    with pytest.raises(type(signal)), run:
        raise signal

    assert (link.num_starts, run.exchange.report_stored) == (1, False)


def test_nor_is_one_where_the_loop_closes_the_run_itself(run: Session, link: Dead) -> None:
    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            run.close()

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert link.num_starts == 1


@pytest.mark.parametrize("error", [ValueError("diverged"), SystemExit(0), SystemExit("no data")])
def test_whatever_else_ends_the_loop_its_last_words_are_stored(run: Session, link: Dead, error: BaseException) -> None:
    with pytest.raises(type(error)), run:
        raise error

    assert (link.num_starts, run.exchange.report_stored) == (2, True)
