"""A rank comes to one verdict, or to a told error, in whatever order it meets its logs and whatever dies meanwhile."""

from __future__ import annotations

from random import Random

import pytest
from structlog.testing import capture_logs

from esper.leyline import contracts as pb
from tests.simulation.arrivals import Kept, Life
from tests.simulation.every_order import SCRIPTS, Case, drawn, outcome, parts

NUM_DRAWN = 40
READ_FIRST = ("commands", "decisions", "decisions")


@pytest.mark.parametrize("script", SCRIPTS)
def test_in_any_order_all_ends_as_it_is_to(script: str) -> None:
    """All 2,080,000 of them: `python -m tests.simulation.every_order`, which takes more than an hour."""
    dice = Random(script)
    with capture_logs():
        told = [(case, how) for case in (drawn(script, dice) for _ in range(NUM_DRAWN)) if (how := parts(case))]

    assert told == []


@pytest.mark.parametrize("flaw", ["replayed", "junk", "stale", "unknown key", "another's", "senseless", "missing"])
def test_an_entry_refused_by_an_earlier_runtime_is_not_waited_for(flaw: str) -> None:
    order = (*["commands"] * (2 * (flaw == "replayed") or flaw != "missing"), "decisions", "decisions")

    ends = [outcome(Case("a round", (("c1", flaw),), order, 0, 0, at, "killed")) for at in range(len(order) + 1)]

    assert ends == [((), "TrainingError")] * len(ends)


def test_a_runtime_that_is_started_anew_does_not_obey_a_leader_that_was_replaced() -> None:
    order = (*READ_FIRST, "decisions", "commands", "optimizer", *["decisions"] * 3)

    ends = [outcome(Case("two leaders", (), order, 0, 0, at, "killed")) for at in range(len(order) + 1)]

    assert ends == [(((1, 20, ("c1",)), (2, 40, ("o1",))), "")] * len(ends)


def test_it_knows_what_was_decided_for_the_trainer_before_its_own() -> None:
    """A commit that is said once more, as after a loss of history, is carried out by no rank of a new group."""
    order = ("commands", *["decisions"] * 6, "commands")

    ends = [outcome(Case("said twice", (), order, 0, 0, 2, "anew", 2, again)) for again in range(3, len(order) + 1)]

    assert ends == [(((2, 40, ("c2",)),), "")] * len(ends)


def test_what_a_replaced_leader_said_before_a_trainer_began_is_no_round_of_its_successor() -> None:
    order = ("commands", "commands", "optimizer", *["decisions"] * 6)

    ended = outcome(Case("two leaders", (), order, 0, 0, 7, "anew", 4))

    assert ended == (((2, 40, ("o1",)),), "")


def test_a_command_that_was_decided_for_the_trainer_before_it_is_answered_as_not_known() -> None:
    """Its round was proposed to that one, which voted and ended; nobody else can answer for it."""
    life = Life(SCRIPTS["a round"].logs())
    life.begin()
    life.read("decisions")
    anew = Life(life.logs, past=life.logs.entries["decisions"][0][0])
    anew.begin()
    anew.drain(["decisions", "commands"])

    assert (anew.carried_out, anew.comes_to_an_end()) == ([], True)
    [receipt] = anew.logs.receipts
    assert (receipt.command_id, receipt.reason) == ("c1", pb.ReasonCode.REASON_ROSTER_CHANGED)


def test_what_is_carried_out_again_between_two_entries_of_its_round_is_settled_with_both() -> None:
    """The runtime died once more, and its successor has read the proposal, and not yet the commit."""
    life = Life(SCRIPTS["a round"].logs())
    life.begin()
    life.drain(["commands", "decisions"])
    anew = Life(life.logs, past=life.logs.entries["decisions"][1][0])
    anew.resume(Kept())
    anew.read("decisions")
    anew.furthest = 21
    anew.train(20)
    anew.drain(["decisions", "commands"])

    assert anew.carried_out == [(1, 20, ("c1",))]
    assert [receipt.command_id for receipt in anew.logs.receipts] == ["c1"]
    assert anew.logs.pending["decisions"] == {}
