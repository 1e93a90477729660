"""A runtime that is started anew is told what the one before it knew, before it reads."""

from __future__ import annotations

import pytest

from esper.errors import RuntimeLostError
from esper.leyline import contracts as pb
from esper.session.exchange import NUM_RECORDS
from tests.link_kit import ORDER, Mortal, exchange


class Slow(Mortal):
    """Lives, and says nothing."""

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        return []


def test_it_knows_whom_it_reads_for_before_it_reads() -> None:
    link = Mortal()
    joined = exchange(link)
    joined.introduce(pb.ToRuntime(record=pb.RunRecord(incarnation=7)))

    link.said.clear()
    link.alive = False
    joined.pump()

    assert link.said[:2] == ["record", "begin"]


def test_what_became_of_requests_while_none_was_there_is_said_to_the_next_one() -> None:
    link = Mortal()
    joined = exchange(link)
    link.alive = False
    for number in range(1, NUM_RECORDS + 3):
        judged = pb.RoundJudged(round=number)
        joined.put_on_record(pb.ToRuntime(record=pb.RunRecord(judged=judged)))

    link.judged.clear()
    joined.pump()

    assert link.judged == list(range(3, NUM_RECORDS + 3))


def test_it_knows_how_far_the_trainer_has_come_before_it_reads() -> None:
    """Or it would end the rank for what a round names that is done with, and is on no log any more."""
    link = Mortal()
    joined = exchange(link)
    joined.say(pb.ToRuntime(heartbeat=pb.Heartbeat(step=19, barrier_due=True)))
    joined.boundary.applied(ORDER, [])

    link.said.clear()
    link.alive = False
    joined.pump()

    assert link.said == ["heartbeat", "begin"]
    assert [(beat.step, beat.round_applied, beat.repeated, beat.barrier_due) for beat in link.beats[1:]] == [
        (19, 3, True, False)
    ]


def test_it_takes_for_a_replay_what_the_one_before_it_had_met() -> None:
    link = Mortal()
    joined = exchange(link)
    link.answers = [
        pb.ToTrainer(windows=pb.WindowsChanged(fields={"controller/0": b"met", "controller/1": b"met"})),
        pb.ToTrainer(windows=pb.WindowsChanged(fields={"controller/1": b"", "optimizer/0": b"met too"})),
        pb.ToTrainer(recalled=pb.Recalled(is_last=True)),  # else it dies of these
    ]
    joined.pump()

    link.alive = False
    joined.pump()

    assert joined.windows == {"controller/0": b"met", "optimizer/0": b"met too"}
    assert [begin.windows for begin in link.begun] == [joined.windows, {}]


def test_what_was_decided_since_a_checkpoint_is_asked_of_the_next_one_where_one_dies_of_that() -> None:
    link = Mortal(num_deaths=1)

    found = exchange(link).recall(pb.Recall(after="1-0"))

    assert [order.entry_id for order in found] == ["9-0"]
    assert link.said == ["recall", "recall"]


@pytest.mark.parametrize("link", [Slow(), Mortal(num_deaths=2)], ids=["silent", "dead"])
def test_who_is_told_by_none_what_was_decided_since_its_checkpoint_does_not_train(link: Mortal) -> None:
    """Commands that were acknowledged as applied are among it. The second runtime dies, too, and a third is not due."""
    joined = exchange(link)

    with pytest.raises(RuntimeLostError, match="what was decided since the checkpoint"):
        joined.recall(pb.Recall(after="1-0"), patience_s=0.01)

    assert not joined.boundary.again
