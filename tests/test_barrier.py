"""Votes become one effective step, and who is missing, late or different is named."""

from __future__ import annotations

import pytest

from esper.leyline import contracts as pb
from esper.tamiyo.barrier import Barrier
from tests.rounds import vote


def opened_round(num_ranks: int = 2) -> Barrier:
    barrier = Barrier([f"worker-{rank}" for rank in range(num_ranks)], generation=1)
    barrier.propose(1_000)
    return barrier


def test_a_proposal_names_the_next_round_and_the_roster_by_rank() -> None:
    barrier = Barrier(["worker-0", "worker-1"], generation=3, round=6)

    proposal = barrier.propose(5)

    assert (proposal.round, proposal.roster_generation, proposal.time_ns) == (7, 3, 5)
    assert list(proposal.roster) == ["worker-0", "worker-1"]
    with pytest.raises(ValueError, match="round 7"):
        barrier.propose(6)


def test_a_change_takes_effect_eight_steps_after_the_furthest_vote() -> None:
    barrier = opened_round()

    first = barrier.arrive(vote(1, step=17, epoch=2), 2_000)
    released = barrier.arrive(vote(0, step=12, epoch=1), 4_001_000)

    assert first is None
    assert released is not None
    assert (released.effective_step, released.epoch, released.latency_ms) == (25, 2, 4.0)
    assert [each.worker for each in released.votes] == ["worker-0", "worker-1"]
    assert not released.digests_compared


def test_ranks_held_before_one_step_take_a_change_there() -> None:
    barrier = opened_round()

    barrier.arrive(vote(0, step=48, held_step=50), 2_000)
    released = barrier.arrive(vote(1, step=50, held_step=50), 2_000)

    assert released is not None
    assert released.effective_step == 50


def test_a_pause_that_only_some_know_of_holds_nothing() -> None:
    barrier = opened_round()

    barrier.arrive(vote(0, step=48, held_step=50), 2_000)
    released = barrier.arrive(vote(1, step=47), 2_000)

    assert released is not None
    assert released.effective_step == 56


def test_votes_that_come_late_twice_or_from_strangers_are_not_folded_in() -> None:
    barrier = opened_round()

    answers = [
        barrier.arrive(vote(0, step=500, number=2), 2_000),
        barrier.arrive(vote(0, step=500, generation=2), 2_000),
        barrier.arrive(vote(7, step=500), 2_000),
        barrier.arrive(vote(0, step=10), 2_000),
        barrier.arrive(vote(0, step=500), 2_000),
    ]
    released = barrier.arrive(vote(1, step=11), 2_000)
    after = barrier.arrive(vote(1, step=11), 2_000)

    assert answers == [None] * 5
    assert after is None
    assert released is not None
    assert released.effective_step == 19


class Named(str):
    """A name that tells how often it was looked at."""

    num_looks = 0

    def __hash__(self) -> int:
        Named.num_looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Named.num_looks += 1
        return super().__eq__(other)


@pytest.mark.parametrize("num_ranks", [8, 64])
def test_a_vote_looks_at_no_rank_but_its_own(num_ranks: int) -> None:
    barrier = Barrier([Named(f"worker-{rank}") for rank in range(num_ranks)], generation=1)
    barrier.propose(1_000)
    Named.num_looks = 0

    barrier.arrive(vote(num_ranks // 2), 2_000)

    assert Named.num_looks <= 2


def test_an_abort_names_who_is_missing() -> None:
    barrier = opened_round(3)
    barrier.arrive(vote(1), 2_000)

    abort = barrier.abort(pb.ReasonCode.REASON_TIMEOUT, "too long")

    assert (abort.round, abort.reason, list(abort.missing)) == (
        1,
        pb.ReasonCode.REASON_TIMEOUT,
        ["worker-0", "worker-2"],
    )
    assert barrier.arrive(vote(0), 2_000) is None


@pytest.mark.parametrize(
    ("digests", "named"),
    [
        ([b"a", b"a", b"b"], ["worker-2"]),
        ([b"a", b"a", b"a"], []),
        ([b"a", b"b"], ["worker-0", "worker-1"]),
        ([b"a", b"b", b"c"], ["worker-0", "worker-1", "worker-2"]),
    ],
)
def test_a_digest_that_differs_is_named_where_a_majority_can_tell(digests: list[bytes], named: list[str]) -> None:
    barrier = opened_round(len(digests))

    released = [barrier.arrive(vote(rank, digest=digest), 2_000) for rank, digest in enumerate(digests)][-1]

    assert released is not None
    assert released.digests_compared
    assert list(released.deviating) == named


def test_digests_of_different_steps_are_not_compared() -> None:
    barrier = opened_round()

    barrier.arrive(vote(0, step=10, digest=b"a"), 2_000)
    released = barrier.arrive(vote(1, step=11, digest=b"b"), 2_000)

    assert released is not None
    assert not released.digests_compared
    assert released.deviating == ()


@pytest.mark.parametrize(
    ("settled", "compared", "named"),
    [
        ([(4, b"a"), (4, b"a"), (4, b"b")], True, ["worker-2"]),
        ([(4, b"a"), (4, b"a"), (4, b"a")], True, []),
        ([(4, b"a"), (4, b"a"), (3, b"b")], False, []),  # one had not come as far
        ([(0, b""), (0, b""), (0, b"")], False, []),
    ],
)
def test_of_votes_before_several_steps_what_ranks_held_where_one_round_took_effect_is_compared(
    settled: list[tuple[int, bytes]], compared: bool, named: list[str]
) -> None:
    barrier = opened_round(3)

    votes = [vote(rank, step=10 + rank, digest=bytes([rank]), settled=each) for rank, each in enumerate(settled)]
    released = [barrier.arrive(each, 2_000) for each in votes][-1]

    assert released is not None
    assert (released.digests_compared, list(released.deviating)) == (compared, named)
