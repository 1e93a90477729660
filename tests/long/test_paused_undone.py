"""A pause that was in force when a run was rolled back holds whoever resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from esper.leyline import contracts as pb
from esper.session import resuming
from esper.session.exchange import Exchange
from esper.tolaria.boundary import Boundary
from esper.tolaria.rows import Rows
from tests.checkpoint_kit import Training
from tests.link_kit import Unanswered
from tests.test_recalled import order, rounds


def pausing(round_: int, step: int, *, resume: bool = False) -> pb.CommitOrder:
    made = order(round_, step)
    made.commands[0].adaptation.pause_command.resume = resume
    return made


class Answering(Unanswered):
    """Tells a trainer that resumes of these orders."""

    def __init__(self, orders: list[pb.CommitOrder]) -> None:
        self.orders = orders

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        """It knows what is wanted."""

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        return [pb.ToTrainer(recalled=pb.Recalled(orders=self.orders, is_last=True))]


@pytest.mark.parametrize(("later", "held_before"), [([], 12), ([pausing(9, 12, resume=True)], 0)])
def test_a_run_that_was_rolled_back_while_it_was_paused_is_paused_after_a_resume(
    tmp_path: Path, later: list[pb.CommitOrder], held_before: int
) -> None:
    """No checkpoint of what was restored is made before the run goes on."""
    first, again = Training(tmp_path, every=4), Training(tmp_path, every=4)
    first.checkpoints.decided = "1-0"
    first.train(11)
    first.checkpoints.undo(5, 12)
    place = again.checkpoints.resume()
    assert place is not None and place.step == 5
    orders = [order(2, 8), pausing(3, 12), order(4, 12, back_to=5), *later]
    boundary = Boundary()
    exchange = Exchange(Answering(orders), boundary, Rows(incarnation=7))

    resuming.begin(exchange, again.checkpoints, place)

    told, carried = boundary.hold().step, []
    for step in range(5, 13):
        assert not boundary.paused_before and boundary.next_due >= step
        while (due := boundary.due(step)) is not None:
            carried.append(due.commit.round)
            boundary.applied(due, [])
    assert (told, boundary.paused_before) == (held_before, held_before)
    assert carried == rounds(later) and boundary.again.keys() == set(carried)


def test_so_does_a_pause_that_a_replica_had_carried_out_behind_its_step(tmp_path: Path) -> None:
    """Its state holds no checkpoint made since: that would be made before the next step, and there was none."""
    first, again = Training(tmp_path, every=4), Training(tmp_path, every=4)
    first.checkpoints.decided = "1-0"
    first.train(11)
    place = again.checkpoints.resume()
    boundary = Boundary()

    resuming.begin(Exchange(Answering([pausing(2, 4)]), boundary, Rows(incarnation=7)), again.checkpoints, place)

    assert place is not None and boundary.hold().step == 4
    assert boundary.due(place.step) is None and boundary.paused_before == 4
