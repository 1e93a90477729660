"""What others go on by, on the vote of a replica that ended, is carried out and answered by the one that resumes."""

from __future__ import annotations

import pytest

from esper.leyline import contracts as pb
from tests.link_kit import ORDER, Mortal, exchange
from tests.simulation.arrivals import Kept, Life
from tests.simulation.every_order import SCRIPTS
from tests.simulation.told import Script, commit, proposal

DONE = pb.Recalled(is_last=True)
LOGS = ("decisions", "commands", "optimizer")
A_ROUND, TWO, ALONE = (
    SCRIPTS["a round"],
    SCRIPTS["two logs"],
    Script((proposal(1, roster=("worker-0",)), commit(1, "c1"))),
)


def voted(script: Script) -> Life:
    """A trainer that has met a proposal and voted, and ends."""
    life = Life(script.logs())
    life.begin()
    life.read("decisions")
    life.train(1)
    return life


def resumed(ended: Life, *, is_replica: bool = True) -> Life:
    """The one after it, from a checkpoint; the round was not decided when it began."""
    anew = Life(ended.logs, past=ended.logs.entries["decisions"][0][0], is_replica=is_replica)
    anew.resume(Kept())
    return anew


def answers(life: Life) -> list[tuple[str, bool]]:
    """Each command, and whether it failed."""
    return [(receipt.command_id, bool(receipt.reason)) for receipt in life.logs.receipts]


@pytest.mark.parametrize("first", LOGS)
def test_it_takes_effect_at_its_step_whatever_is_read_first(first: str) -> None:
    anew = resumed(voted(TWO))

    anew.drain([first, *(log for log in LOGS if log != first)])

    assert anew.comes_to_an_end()
    assert anew.carried_out == [(1, 20, ("c1", "o1")), (2, 40, ("c2",))]
    assert answers(anew) == [("c1", False), ("o1", False), ("c2", False)]
    assert anew.logs.pending["decisions"] == anew.logs.pending["commands"] == {}


def test_it_takes_effect_behind_its_step_where_that_has_gone_by() -> None:
    anew = resumed(voted(A_ROUND))
    anew.step = 30

    anew.drain(LOGS)

    assert anew.comes_to_an_end()
    assert anew.carried_out == [(1, 30, ("c1",))]


@pytest.mark.parametrize("at", range(1, 4))
def test_a_runtime_that_is_killed_meanwhile_lets_it_be_answered_once(at: int) -> None:
    anew = resumed(voted(A_ROUND))
    for log in ("decisions", "commands")[: at - 1]:
        anew.read(log)
    anew.start_runtime()
    anew.drain(LOGS)
    if at == 3:
        anew.start_runtime()

    assert anew.comes_to_an_end()
    anew.drain(LOGS)
    assert anew.carried_out == [(1, 20, ("c1",))]
    assert answers(anew) == [("c1", False)]


@pytest.mark.parametrize(
    ("script", "is_replica", "resumes"),
    [(A_ROUND, False, True), (ALONE, True, True), (A_ROUND, True, False)],
    ids=["a rank of a group", "alone", "begun anew"],
)
def test_where_nobody_goes_on_by_it_it_is_answered_as_not_known(
    script: Script, is_replica: bool, resumes: bool
) -> None:
    ended = voted(script)
    anew = Life(ended.logs, past=ended.logs.entries["decisions"][0][0], is_replica=is_replica)
    anew.resume(Kept()) if resumes else anew.begin()

    anew.drain(LOGS)

    assert (anew.comes_to_an_end(), anew.carried_out, answers(anew)) == (True, [], [("c1", True)])


def test_a_trainer_that_has_begun_takes_one_more_order_once() -> None:
    link = Mortal()
    joined = exchange(link)
    joined.boundary.recall(joined.recall(pb.Recall(after="1-0")))
    later = pb.CommitOrder(commit=pb.BarrierCommit(round=4, effective_step=30), entry_id="10-0")

    for _ in range(2):
        link.answers = [pb.ToTrainer(recalled=pb.Recalled(orders=[later])), pb.ToTrainer(recalled=DONE)]
        joined.pump()

    assert [joined.boundary.due(40) for _ in range(3)] == [ORDER, later, None]


def test_one_that_resumed_from_a_checkpoint_of_no_known_place_in_the_log_takes_it_too() -> None:
    """As of an older version, or kept where no run was named: nothing was recalled."""
    link = Mortal()
    joined = exchange(link)
    joined.begin()

    link.answers = [pb.ToTrainer(recalled=pb.Recalled(orders=[ORDER]))]
    joined.pump()

    assert joined.boundary.due(40) == ORDER
