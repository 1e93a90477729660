"""What a resumed rank carries out again: what its state does not hold, rollbacks and what they undid among it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from esper.leyline import contracts as pb
from esper.session.resuming import common_start
from esper.tolaria.boundary import Boundary
from esper.tolaria.state.recalled import still_to_do
from tests.rank_kit import Averaging
from tests.rounds import commit_order


def rounds(orders: list[pb.CommitOrder]) -> list[int]:
    return [each.commit.round for each in orders]


def test_what_took_effect_by_the_checkpoints_step_is_in_it() -> None:
    orders = [commit_order(1, 8), commit_order(2, 9), commit_order(3, 10)]

    assert rounds(still_to_do(orders, 9)) == [3]


def test_what_a_rollback_undid_is_done_again_and_so_is_the_rollback() -> None:
    """It may have left a hyperparameter or a cull standing."""
    orders = [
        commit_order(1, 12),
        commit_order(2, 14, snapshot=True),
        commit_order(3, 20),
        commit_order(4, 24, back_to=14),
        commit_order(5, 30),
    ]

    assert rounds(still_to_do(orders, 9)) == [1, 2, 3, 4, 5]


def test_what_a_replica_heard_of_behind_its_step_is_done_again_unless_its_state_holds_it() -> None:
    orders = [commit_order(1, 4), commit_order(2, 8), commit_order(3, 8), commit_order(4, 12)]

    assert rounds(still_to_do(orders, 9, carried_out=["1-0", "3-0"])) == [2, 4]


def test_what_was_decided_later_and_took_effect_sooner_is_done_sooner_again() -> None:
    orders = [
        commit_order(1, 12),
        commit_order(2, 30),
        commit_order(3, 20),
    ]  # the third while a process that had resumed was behind 30

    assert rounds(still_to_do(orders, 9)) == [1, 3, 2]


def test_a_boundary_carries_recalled_orders_out_beside_new_ones() -> None:
    boundary = Boundary()
    boundary.recall([commit_order(3, 10), commit_order(4, 30)])
    boundary.on_commit(commit_order(9, 20))

    carried = []
    for step in range(9, 31):
        while (due := boundary.due(step)) is not None:
            boundary.applied(due, [])
            carried.append((step, due.commit.round, boundary.round_applied, boundary.recalling))

    assert carried == [(10, 3, 0, True), (20, 9, 9, True), (30, 4, 9, False)]
    assert {number: answer.round for number, answer in boundary.again.items() if answer} == {3: 3, 4: 4}


def test_what_is_recalled_later_and_takes_effect_sooner_waits_behind_nothing() -> None:
    """A replica that resumed twice inherits what was decided on a vote behind that which it has yet to do again."""
    boundary = Boundary()
    boundary.recall([commit_order(3, 30)])
    boundary.recall([commit_order(4, 20)])

    due = [(step, boundary.next_due, boundary.due(step)) for step in (10, 20, 30)]

    assert [(step, at, each and each.commit.round) for step, at, each in due] == [
        (10, 20, None),
        (20, 20, 4),
        (30, 30, 3),
    ]


def test_a_pause_that_is_recalled_is_known_to_a_vote() -> None:
    boundary = Boundary()
    pause = pb.OpenedCommand(adaptation=pb.AdaptationCommand(pause_command=pb.PauseCommand()))
    boundary.recall([pb.CommitOrder(commit=pb.BarrierCommit(round=1, effective_step=40), commands=[pause])])

    assert boundary.hold().step == 40


@pytest.mark.parametrize("read", [[3, 3], [3, 2], [0, 2], [5, 9, 4]])
def test_ranks_agree_on_what_all_of_them_have_read(read: list[int]) -> None:
    log, ranks = [commit_order(number, number) for number in range(1, 10)], Averaging(len(read))

    with ThreadPoolExecutor(len(read)) as pool:
        agreed = pool.map(lambda rank: common_start(log[: read[rank]], partial(ranks.mean, rank)), range(len(read)))

    assert [rounds(each) for each in agreed] == [rounds(log[: min(read)])] * len(read)


def test_ranks_that_begin_to_read_at_other_entries_end_at_the_same_one() -> None:
    """Each begins behind what had been decided when it joined, where nothing was carried out before its checkpoint."""
    log, ranks = [commit_order(number, number) for number in range(5, 9)], Averaging(2)
    read = [log[:4], log[1:3]]

    with ThreadPoolExecutor(2) as pool:
        agreed = pool.map(lambda rank: common_start(read[rank], partial(ranks.mean, rank)), range(2))

    assert [rounds(each) for each in agreed] == [[5, 6, 7], [6, 7]]
