"""The step boundary: promises, orders, pauses, repeats."""

from __future__ import annotations

import pytest

from esper.errors import TrainingError
from esper.leyline import contracts as pb
from esper.tolaria.boundary import Boundary


def commit(round_: int, effective_step: int, *changes: pb.AdaptationCommand) -> pb.CommitOrder:
    return pb.CommitOrder(
        commit=pb.BarrierCommit(round=round_, effective_step=effective_step),
        commands=[pb.OpenedCommand(adaptation=change) for change in changes],
    )


def pause(resume: bool = False) -> pb.AdaptationCommand:
    return pb.AdaptationCommand(pause_command=pb.PauseCommand(resume=resume))


def vote(round_: int, step: int) -> pb.BarrierVote:
    return pb.BarrierVote(round=round_, step=step)


def voted_at(boundary: Boundary, round_: int, step: int) -> None:
    boundary.on_proposal(pb.BarrierProposal(round=round_))
    boundary.voted(vote(round_, step))


def test_a_vote_forbids_the_eighth_step_after_it_until_the_decision() -> None:
    boundary = Boundary()
    voted_at(boundary, 1, step=10)

    waits = [step for step in range(10, 20) if boundary.must_wait(step)]

    assert waits == [18, 19]
    boundary.on_commit(commit(1, effective_step=18))
    assert not boundary.must_wait(18)


def test_an_abort_frees_the_promise_and_applies_nothing() -> None:
    boundary = Boundary()
    voted_at(boundary, 1, step=10)

    boundary.on_abort(pb.BarrierAbort(round=1))

    assert not boundary.must_wait(100)
    assert boundary.due(100) is None


def test_the_decision_of_an_earlier_round_leaves_the_newer_promise_in_force() -> None:
    boundary = Boundary()
    voted_at(boundary, 1, step=10)
    voted_at(boundary, 2, step=12)

    boundary.on_commit(commit(1, effective_step=18))

    assert boundary.must_wait(20)


def test_an_order_is_due_before_its_step_and_not_earlier() -> None:
    boundary = Boundary()
    boundary.on_commit(commit(1, effective_step=18))

    assert boundary.due(17) is None
    assert boundary.due(18) == commit(1, effective_step=18)
    assert boundary.due(18) is None


def test_an_order_whose_step_has_gone_by_stops_the_rank() -> None:
    boundary = Boundary()
    boundary.on_commit(commit(1, effective_step=18))

    with pytest.raises(TrainingError, match="step 18, but this rank stands before step 19"):
        boundary.due(19)


def test_a_repeated_commit_is_answered_with_the_first_receipts() -> None:
    boundary = Boundary()
    order = commit(1, effective_step=18)
    boundary.on_commit(order)
    first = boundary.due(18)
    assert first is not None
    answer = boundary.applied(first, [pb.CommandReceipt(command_id="c1", step=18)])

    again = boundary.on_commit(order)

    assert again == answer
    assert boundary.due(18) is None


def test_a_repeated_commit_that_still_waits_for_its_step_is_queued_once() -> None:
    boundary = Boundary()
    boundary.on_commit(commit(1, effective_step=18))
    boundary.on_commit(commit(1, effective_step=18))

    first, second = boundary.due(18), boundary.due(18)

    assert first is not None
    assert second is None


def test_a_repeated_proposal_is_answered_with_the_same_vote() -> None:
    boundary = Boundary()
    voted_at(boundary, 1, step=10)

    again = boundary.on_proposal(pb.BarrierProposal(round=1))

    assert again == vote(1, 10)
    assert boundary.vote_asked() is None


def test_a_proposal_of_a_decided_round_asks_for_no_vote() -> None:
    boundary = Boundary()
    boundary.on_commit(commit(3, effective_step=18))

    boundary.on_proposal(pb.BarrierProposal(round=2))

    assert boundary.vote_asked() is None


def test_it_knows_the_newest_round_that_it_was_asked_about_or_told_of_also_where_none_was_applied() -> None:
    boundary = Boundary()
    met = [boundary.round_met]
    boundary.on_proposal(pb.BarrierProposal(round=5))
    met.append(boundary.round_met)
    voted_at(boundary, 6, step=10)
    met.append(boundary.round_met)
    boundary.on_abort(pb.BarrierAbort(round=7))
    met.append(boundary.round_met)

    assert met == [0, 5, 6, 7] and boundary.round_applied == 0


def test_a_committed_pause_is_told_in_votes_before_it_takes_effect() -> None:
    boundary = Boundary()
    boundary.on_commit(commit(1, 18, pause()))

    assert boundary.hold().step == 18
    order = boundary.due(18)
    assert order is not None
    boundary.applied(order, [])
    assert boundary.paused_before == 18


def test_a_resume_at_the_held_step_frees_the_run() -> None:
    boundary = Boundary()
    for order in (commit(1, 18, pause()), commit(2, 18, pause(resume=True))):
        boundary.on_commit(order)
    while (due := boundary.due(18)) is not None:
        boundary.applied(due, [])

    assert boundary.paused_before == 0
    assert not boundary.hold().held


@pytest.mark.parametrize("when", ["before it", "in it", "in a life before"])
def test_a_pause_that_is_resumed_before_a_later_step_is_left_to_come_to_that_step(when: str) -> None:
    """A replica that had joined meanwhile was past the pause, and the resume takes effect where that one will be."""
    boundary, paused = Boundary(), list[int]()
    orders = [commit(1, 18, pause()), commit(2, 20), commit(3, 26, pause(resume=True)), commit(4, 30, pause())]
    if when == "in a life before":
        boundary.recall(orders)
    else:
        for order in orders[: 2 if when == "in it" else 4]:
            boundary.on_commit(order)

    carried_out = _carried_out(boundary, 18)
    if when == "in it":
        paused.append(boundary.paused_before)
        for order in orders[2:]:
            boundary.on_commit(order)
    for step in range(18, 31):
        paused.append(boundary.paused_before)
        carried_out += _carried_out(boundary, step)

    assert carried_out == [(1, 18), (2, 20), (3, 26), (4, 30)]
    assert paused == [18] * (when == "in it") + [0] * 13 and boundary.paused_before == 30


def test_a_pause_outlasts_what_does_not_resume_the_run_before_a_later_step() -> None:
    boundary = Boundary()
    for order in (commit(1, 18, pause()), commit(2, 26), commit(3, 30, pause())):
        boundary.on_commit(order)

    assert _carried_out(boundary, 18) == [(1, 18)]
    assert boundary.paused_before == 18


def _carried_out(boundary: Boundary, step: int) -> list[tuple[int, int]]:
    """Rounds, each with the step before which it was carried out."""
    done = []
    while (due := boundary.due(step)) is not None:
        boundary.applied(due, [])
        done.append((due.commit.round, step))
    return done


def test_pausing_one_seed_does_not_pause_the_run() -> None:
    boundary = Boundary()
    boundary.on_commit(commit(1, 18, pb.AdaptationCommand(pause_command=pb.PauseCommand(seed_id="s0"))))

    assert not boundary.hold().held


def test_a_rank_of_a_group_ends_where_the_decision_on_its_vote_is_lost() -> None:
    """Redis has lost it, and whoever leads goes on; another rank may have read it before."""
    alone, of_group = Boundary(), Boundary(is_in_group=True)
    for boundary in (alone, of_group):
        boundary.on_proposal(pb.BarrierProposal(round=1))
        boundary.voted(pb.BarrierVote(round=1, step=3))

    alone.on_proposal(pb.BarrierProposal(round=1_002))
    with pytest.raises(TrainingError, match="is proposed, and what was decided in round 1, on which"):
        of_group.on_proposal(pb.BarrierProposal(round=1_002))


def test_a_command_that_a_later_round_names_again_is_answered_and_not_carried_out_again() -> None:
    boundary = Boundary()
    first, again = refs(1, 18, b"a"), refs(5, 30, b"a", b"b")
    boundary.on_commit(first)
    due = boundary.due(18)
    assert due is not None
    boundary.applied(due, [pb.CommandReceipt(command_id="a", round=1)])

    boundary.on_commit(again)
    rest = boundary.due(30)
    assert rest is not None
    answer = boundary.applied(rest, [pb.CommandReceipt(command_id="b", round=5)])

    assert [opened.ref.envelope_digest for opened in rest.commands] == [b"b"]
    assert [(receipt.command_id, receipt.round) for receipt in answer.receipts] == [("b", 5), ("a", 1)]


def refs(round_: int, effective_step: int, *digests: bytes) -> pb.CommitOrder:
    named = [pb.CommittedCommand(envelope_digest=digest) for digest in digests]
    return pb.CommitOrder(
        commit=pb.BarrierCommit(round=round_, effective_step=effective_step, commands=named),
        commands=[pb.OpenedCommand(ref=ref, adaptation=pause(resume=True)) for ref in named],
    )
