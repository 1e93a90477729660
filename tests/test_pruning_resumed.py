"""A process that resumes judges prunings as the one before it would; where it can't undo one, the run says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from esper.kasmina.pruning.pruner import PARTED
from esper.leyline import contracts as pb
from tests.pruning_kit import WATCHED, Dictated
from tests.pruning_session_kit import Ranks


def resumed(run: Dictated) -> Dictated:
    """Another process, that begins with what a checkpoint of this one holds."""
    later = Dictated(run.pruning.settings)
    later.model.load_state_dict(run.model.state_dict())
    later.pruning.load_state(run.pruning.state())
    later.pruning.load_standing(run.pruning.standing())
    later.number = run.number
    return later


def undone(run: Dictated) -> list[str]:
    """Why, of what this process prunes and steps with 5.1 times the norms before it."""
    run.prune()
    run.step(5.1)
    run.step()
    return [event.attributes["reason"] for event in run.pruning.take_events()]


def test_norms_of_the_process_before_it_are_what_a_change_is_judged_by() -> None:
    run = Dictated()
    run.step(num=3)

    later = resumed(run)

    assert undone(later) == undone(run) == ["gradient norm 5.1 x its running median; at most 5"]


def test_so_is_the_accuracy() -> None:
    run = Dictated()
    run.pruning.note_accuracy(0.9)
    run.step()
    later = resumed(run)
    later.prune()
    later.step()
    later.pruning.note_accuracy(0.8)

    later.step()

    [event] = later.pruning.take_events()
    assert event.attributes["reason"] == "accuracy 10 points below 0.9; at most 2"


def test_a_checkpoint_that_is_older_or_of_other_settings_brings_no_norms() -> None:
    run, later = Dictated(), Dictated()
    run.step(num=3)
    state = run.pruning.state()
    later.pruning.load_state({**state, "watch": state["watch"][:-1]})
    del state["watch"]
    later.pruning.load_state(state)

    assert undone(later) == []


@pytest.mark.parametrize(("norm", "why"), [(5.1, PARTED), (4.9, "")])
def test_who_undoes_what_another_process_had_pruned_says_so_for_good(norm: float, why: str) -> None:
    run = Dictated()
    run.step(num=3)
    run.prune()
    run.step()
    later = resumed(run)
    for each in (run, later):
        each.step(norm)
        each.step(num=30)

    assert run.pruning.by_chance == ""
    assert later.pruning.by_chance == resumed(later).pruning.by_chance == why
    assert (run.pruning.masks.num_pruned() == later.pruning.masks.num_pruned()) == (not why)


def test_harm_that_came_before_the_checkpoint_is_seen_behind_it() -> None:
    run = Dictated(replace(WATCHED, check_every=10))
    run.step(num=10)
    run.prune()
    run.step(5.1)

    later = resumed(run)
    later.step(num=10)

    assert [event.name for event in later.pruning.take_events()] == ["pruning.undone"]


def test_the_record_of_such_a_run_says_why_it_can_not_be_replayed() -> None:
    ranks, records = Ranks(), list[pb.RunRecord]()
    for run in ranks.runs:
        run.not_replayable = ""
        run.exchange.part = lambda farewell, record, patience_s=10.0: records.append(record)  # type: ignore[method-assign]
    ranks.runs[1].pruning.load_standing({**ranks.runs[1].pruning.standing(), "parted": 1})

    for run in ranks.runs:
        run.close()

    assert [record.ended.not_replayable for record in records] == ["", PARTED]
