"""Whoever is heard and votes on nothing is given up by name, like one that hangs; whoever is away is waited for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from esper.leyline import contracts as pb
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.nonvoters import MUTE_ROUNDS
from esper.tamiyo.overdue import ROUND_NS
from tests.rounds import germinate, heartbeat, opened, vote

S = 1_000_000_000
MUTE = 1


class Run:
    """Two ranks or three replicas, which all vote but one, and are heard once a second; a command waits."""

    def __init__(self, *, group: bool, most: int = MUTE_ROUNDS) -> None:
        self.num, self.size = (2, 2) if group else (3, 1)
        self.rule = Coordinator("coordinator", mute_rounds=most)
        self.now_ns, self.num_votes = 0, 0
        self.aborts: list[pb.BarrierAbort] = []
        self.commits: list[pb.BarrierCommit] = []
        self.rule.on_command("commands", opened(germinate(), "1-0"))

    def beat(self, number: int, *, busy: int = 0, repeated: bool = False) -> None:
        said = heartbeat(number, 1, world_size=self.size, incarnation=number + 10)
        said.rank, said.busy, said.repeated = number % self.size, busy, repeated  # type: ignore[assignment]
        self.rule.on_heartbeat(said, self.now_ns)

    def goes_on(self, num_s: int, silent: Callable[[int], bool] = lambda number: number == MUTE) -> None:
        """For so long; who is silent votes on nothing."""
        for _ in range(num_s):
            for number in range(self.num):
                self.beat(number)
            self.second(silent)

    def second(self, silent: Callable[[int], bool] = lambda number: number == MUTE) -> None:
        self.note(self.rule.tick(self.now_ns).decisions)
        barrier = self.rule.barrier
        assert barrier is not None
        for worker in barrier.missing if barrier.is_open else ():
            number = int(worker.rpartition("-")[2])
            if not silent(number):
                self.num_votes += 1
                given = vote(number, 10, number=barrier.round, generation=barrier.generation)
                self.note(self.rule.on_vote(given, ("votes", f"{self.num_votes}-0"), self.now_ns).decisions)
        self.now_ns += S

    def note(self, decisions: list[pb.BarrierProposal | pb.BarrierCommit | pb.BarrierAbort]) -> None:
        self.aborts += [each for each in decisions if isinstance(each, pb.BarrierAbort)]
        self.commits += [each for each in decisions if isinstance(each, pb.BarrierCommit)]

    @property
    def given_up(self) -> list[list[str]]:
        return [[process.worker for process in abort.evicted] for abort in self.aborts]


ROUND_S = ROUND_NS // S


def test_a_group_with_a_rank_that_votes_on_nothing_begins_anew_after_three_rounds() -> None:
    run = Run(group=True)

    run.goes_on(3 * ROUND_S + 1)

    assert run.given_up == [[], [], ["worker-0", "worker-1"]]
    assert "worker-1 voted in none of 3 rounds, though it was heard" in run.aborts[-1].detail
    assert run.aborts[-1].reason == pb.ReasonCode.REASON_TIMEOUT


def test_a_replica_that_votes_on_nothing_is_evicted_alone_and_what_waits_is_carried_out_by_the_others() -> None:
    run = Run(group=False)

    run.goes_on(3 * ROUND_S + 3)

    assert run.given_up == [[], [], ["worker-1"]]
    assert [len(commit.commands) for commit in run.commits] == [1]


def test_after_how_many_rounds_can_be_chosen() -> None:
    run = Run(group=True, most=1)

    run.goes_on(ROUND_S + 1)

    assert run.given_up == [["worker-0", "worker-1"]]


def test_one_vote_and_what_it_has_left_out_before_counts_no_more() -> None:
    run = Run(group=False)

    run.goes_on(2 * ROUND_S + 1)
    run.goes_on(1, silent=lambda number: False)
    run.rule.on_command("commands", opened(germinate("s1", "hidden"), "2-0"))
    run.goes_on(2 * ROUND_S + 1)

    assert (len(run.commits), run.given_up) == (1, [[]] * 4)


@pytest.mark.parametrize(
    ("busy", "repeated"), [(pb.BusyWith.BUSY_COMPILE, True), (pb.BusyWith.BUSY_NONE, True)], ids=["away", "in a step"]
)
def test_a_compilation_is_waited_for_said_or_not(busy: int, repeated: bool) -> None:
    run = Run(group=True)
    run.goes_on(1)
    run.beat(MUTE, busy=busy)

    for _ in range(10 * ROUND_S):
        run.beat(0)
        run.beat(MUTE, busy=busy, repeated=repeated)
        run.second()

    assert len(run.aborts) >= 9
    assert not any(run.given_up)


def test_a_long_step_is_waited_for_also_where_the_coordinator_could_hear_nobody() -> None:
    """That excuses whoever is silent: it makes nobody come to a boundary."""
    run = Run(group=True)
    run.goes_on(1)

    for _ in range(10 * ROUND_S):
        run.beat(0)
        run.beat(MUTE, repeated=True)
        run.rule.on_deaf(run.now_ns)
        run.second()

    assert len(run.aborts) >= 9
    assert not any(run.given_up)


def test_where_nobody_votes_nobody_is_given_up_for_that() -> None:
    run = Run(group=False)

    run.goes_on(10 * ROUND_S, silent=lambda number: True)

    assert len(run.aborts) >= 9
    assert not any(run.given_up)
