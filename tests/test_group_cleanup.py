"""Groups of replicas that others go on without are destroyed, so that no log is kept for their sake."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from esper.bus.connect import Redis
from esper.bus.names import POSITIONED, key
from esper.bus.upkeep.floors import workers_of
from esper.leyline import contracts as pb
from esper.runtime.coordinator.group_cleanup import GroupCleanup
from esper.tamiyo.outcome import Outcome

BOTH = ["worker-0", "worker-1"]


@pytest.fixture
async def cleanup(redis: Redis, run_id: str) -> GroupCleanup:
    """Of a run of two replicas, of whose groups nobody reads any more."""
    for name in POSITIONED:
        for worker in BOTH:
            await redis.execute_command("XGROUP", "CREATE", key(run_id, name), worker, "0", "MKSTREAM")
    return GroupCleanup(redis, run_id, unread_s=0.0)


def proposal(*roster: str) -> pb.BarrierProposal:
    return pb.BarrierProposal(version=1, round=1, roster_generation=1, roster=roster)


async def test_those_of_one_that_has_left_go_and_the_others_stay(
    cleanup: GroupCleanup, redis: Redis, run_id: str
) -> None:
    cleanup.follow(Outcome(left=["worker-1"]))

    await cleanup.proceed()

    assert await workers_of(redis, run_id) == ["worker-0"]


async def test_those_of_one_that_is_asked_again_stay(cleanup: GroupCleanup, redis: Redis, run_id: str) -> None:
    cleanup.follow(Outcome(left=["worker-1"]))
    cleanup.follow(Outcome(decisions=[proposal(*BOTH)]))

    await cleanup.proceed()

    assert await workers_of(redis, run_id) == BOTH


def eviction(incarnation: int) -> Outcome:
    evicted = [pb.EvictedProcess(worker="worker-1", incarnation=incarnation)]
    return Outcome(decisions=[pb.BarrierAbort(version=1, round=1, evicted=evicted)], evicted_alone=["worker-1"])


async def test_each_process_that_is_evicted_is_told_of_once_however_often_it_is_told_to_end(
    cleanup: GroupCleanup, redis: Redis, run_id: str
) -> None:
    next_leader = GroupCleanup(redis, run_id)
    next_leader.resume(eviction(12).decisions)

    with capture_logs() as logs:
        for incarnation in (11, 11, 12, 12):
            await cleanup.record(eviction(incarnation))
        await next_leader.record(eviction(12))

    assert [line["event"] for line in logs] == ["worker.evicted"] * 2


@pytest.mark.parametrize(
    ("rosters", "stay"),
    [([BOTH, ["worker-0"]], ["worker-0"]), ([BOTH, ["worker-0"], BOTH], BOTH), ([["worker-0"], BOTH], BOTH)],
)
async def test_a_new_leader_goes_on_with_whoever_is_in_no_roster_any_more(
    cleanup: GroupCleanup, redis: Redis, run_id: str, rosters: Sequence[Sequence[str]], stay: Sequence[str]
) -> None:
    cleanup.resume([proposal(*roster) for roster in rosters])

    await cleanup.proceed()

    assert await workers_of(redis, run_id) == stay
