"""Who resumes carries out what its state does not hold, also what was undone, and what came late."""

from __future__ import annotations

from pathlib import Path

import pytest

from esper.leyline import contracts as pb
from esper.session import resuming
from esper.session.exchange import Exchange
from esper.tolaria.boundary import Boundary
from esper.tolaria.checkpoints.store import Checkpoint
from esper.tolaria.rows.rows import Rows
from tests.checkpoint_kit import Training
from tests.link_kit import Unanswered
from tests.rounds import commit_order


def pausing(round_: int, step: int, *, resume: bool = False) -> pb.CommitOrder:
    made = commit_order(round_, step)
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


def resumed(folder: Path, orders: list[pb.CommitOrder], boundary: Boundary) -> tuple[Training, int]:
    """A process that goes on from the newest checkpoint, and the step before which it does."""
    again = Training(folder, every=4)
    place = again.checkpoints.resume()
    assert place is not None
    resuming.begin(Exchange(Answering(orders), boundary, Rows(incarnation=7)), again.checkpoints, place)
    return again, place.step


def carried_out(boundary: Boundary, again: Training, steps: range) -> list[tuple[int, int]]:
    """Rounds, each with the step that it was carried out before."""
    carried = []
    for step in steps:
        while (due := boundary.due(step)) is not None:
            carried.append((due.commit.round, step))
            boundary.applied(due, [])
            again.checkpoints.note(due)
    return carried


@pytest.mark.parametrize(("later", "paused_before"), [([], 12), ([pausing(9, 12, resume=True)], 0)])
def test_a_run_that_was_rolled_back_while_it_was_paused_goes_back_and_is_paused_again(
    tmp_path: Path, later: list[pb.CommitOrder], paused_before: int
) -> None:
    """No checkpoint of what was restored is made before the run goes on."""
    first, boundary = Training(tmp_path, every=4), Boundary()
    first.checkpoints.decided = "1-0"
    first.train(11)
    first.checkpoints.undo(5, 12)
    orders = [commit_order(2, 8), pausing(3, 12), commit_order(4, 12, back_to=5), *later]

    again, at = resumed(tmp_path, orders, boundary)

    assert (at, boundary.hold().step) == (5, paused_before)
    assert carried_out(boundary, again, range(5, 13)) == [
        (each.commit.round, each.commit.effective_step) for each in orders
    ]
    assert boundary.paused_before == paused_before


def test_a_replica_carries_out_again_what_it_had_heard_of_behind_its_step(tmp_path: Path) -> None:
    """A pause, and a command beside it: the next checkpoint may be hours away."""
    first, boundary = Training(tmp_path, every=4), Boundary()
    first.checkpoints.decided = "1-0"
    first.train(11)

    again, at = resumed(tmp_path, [commit_order(2, 4), pausing(3, 4)], boundary)

    assert (at, boundary.next_due) == (9, 4)
    assert carried_out(boundary, again, range(9, 10)) == [(2, 9), (3, 9)]
    assert boundary.paused_before == 4


@pytest.mark.parametrize("is_in_group", [False, True])
def test_nothing_is_carried_out_again_that_the_state_holds_beside_what_was_yet_to_come(
    tmp_path: Path, is_in_group: bool
) -> None:
    """It was decided by the time that a process which had resumed came to an older order's step."""
    first, boundary = Training(tmp_path, every=4), Boundary(is_in_group=is_in_group)
    first.checkpoints.decided = "1-0"
    first.train(5)
    again, at = resumed(tmp_path, [commit_order(2, 20)], boundary)
    boundary.on_commit(commit_order(3, 8))
    assert carried_out(boundary, again, range(at, 9)) == [(3, 8)]
    again.step = at
    again.train(5)
    last = Boundary(is_in_group=is_in_group)

    once_more, at = resumed(tmp_path, [commit_order(2, 20), commit_order(3, 8)], last)

    assert at == 9
    assert carried_out(last, once_more, range(9, 30)) == [(2, 20)]
    once_more.checkpoints.save(30)
    made = [each.manifest.log for each in again.checkpoints.store.verified() if isinstance(each, Checkpoint)]
    assert [(each.positions["decisions"], each.beyond) for each in made[:2]] == [("2-0", ["3-0"]), ("1-0", ["3-0"])]
