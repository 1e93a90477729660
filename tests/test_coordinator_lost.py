"""A coordinator whose Redis loses its history goes on; one that was replaced ends; neither holds ever so much."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from esper.bus import names
from esper.bus.group.delivery import FIELD
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain
from esper.leyline.succession import Said
from esper.runtime.coordinator.lease import Standby
from esper.runtime.coordinator.loop import CoordinatorLoop
from esper.runtime.serving.windows import ReplacedError
from esper.tamiyo.command_queue import MOST_WAITING
from tests.bus_kit import DEADLINE_S, num_pending, until
from tests.coordinator_kit import Run, fall_back, lose_history, notice, run, step_until_idle, stored
from tests.rounds import germinate, heartbeat, vote

__all__ = ["run"]


async def test_a_command_published_after_history_is_lost_is_judged_by_the_same_coordinator(run: Run) -> None:
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [lost] = await run.put("commands", germinate("s0"))
    await step_until_idle(coordinating)
    await run.put("votes", vote(0))
    await step_until_idle(coordinating)

    await lose_history(run)
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [later] = await run.put("commands", germinate("s1", site="hidden"))
    await step_until_idle(coordinating)
    await step_until_idle(coordinating)
    await run.put("votes", vote(0, number=2), vote(1, number=2))
    await step_until_idle(coordinating)

    assert await run.decisions() == ["Abort 1", "Proposal 2", "Commit 2"]
    assert await run.receipts() == [("s0-1", lost, "CANCELLED"), ("s1-1", later, "NONE")]
    assert await num_pending(run.redis, names.key(run.run_id, "commands"), "coordinator") == 0


async def test_a_command_whose_number_another_has_after_a_loss_is_lost_and_the_other_is_judged(run: Run) -> None:
    """As where the server's clock was set back too: numbers go on from the newest that is left."""
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [entry] = await run.put("commands", germinate("s0"))
    await step_until_idle(coordinating)

    await lose_history(run)
    other = run.sealers["commands"].seal(germinate("s1", site="hidden"))
    await run.redis.xadd(names.key(run.run_id, "commands"), {FIELD: other}, id=entry)
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    for _ in range(2):
        await step_until_idle(coordinating)
    await run.put("votes", vote(0, number=2), vote(1, number=2))
    await step_until_idle(coordinating)

    assert await run.receipts() == [("s0-1", entry, "CANCELLED"), ("s1-1", entry, "NONE")]


async def test_what_was_seen_before_history_was_lost_is_refused_after_it_and_after_a_restart(run: Run) -> None:
    coordinating = await run.coordinator()
    sealed = run.sealers["commands"].seal(germinate())
    await run.put_bytes("commands", sealed)
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await step_until_idle(coordinating)

    await lose_history(run)
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await step_until_idle(coordinating)
    again = await run.put_bytes("commands", sealed)
    await step_until_idle(await run.coordinator())

    assert ("", again, "REPLAYED") in await run.receipts()


async def test_heartbeats_that_are_read_again_bring_back_no_process_that_was_replaced(run: Run) -> None:
    """The group would be taken for another one, and what was decided last would bind nobody any more."""
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await step_until_idle(coordinating)
    await run.put("heartbeats", heartbeat(0, incarnation=2), heartbeat(1, incarnation=2))
    await step_until_idle(coordinating)
    await run.redis.xgroup_destroy(names.key(run.run_id, "heartbeats"), "coordinator")
    await notice(coordinating, "heartbeats")  # from the first on
    await run.put("commands", germinate())
    await step_until_idle(coordinating)

    [proposal] = [said for said in await run.said("decisions", Domain.DECISION) if isinstance(said, pb.BarrierProposal)]
    assert (list(proposal.incarnations), proposal.roster_generation) == ([2, 2], 3)  # formed three times, no more
    assert await num_pending(run.redis, names.key(run.run_id, "heartbeats"), "coordinator") == 0


async def test_what_was_judged_before_redis_fell_back_is_not_judged_again_and_its_decision_is_said_again(
    run: Run,
) -> None:
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", germinate())
    await step_until_idle(coordinating)
    before = await stored(run)
    await run.put("votes", vote(0), vote(1))
    await step_until_idle(coordinating)

    await fall_back(run, before)
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await step_until_idle(coordinating)
    said_again = await run.decisions()
    coordinating.inboxes["commands"].rewind()  # as after every lost connection
    await run.put("heartbeats", heartbeat(0, 20, applied=1), heartbeat(1, 20, applied=1))
    await step_until_idle(coordinating)

    assert said_again == ["Proposal 1", "Commit 1"]
    assert await run.decisions() == ["Proposal 1", "Commit 1"]
    assert await num_pending(run.redis, names.key(run.run_id, "commands"), "coordinator") == 0
    assert await run.redis.xlen(names.key(run.run_id, "commands")) == 1


async def test_a_leader_goes_on_where_redis_falls_back_to_the_claim_that_it_took_over_from(run: Run) -> None:
    claiming = Standby(run.redis, names.key(run.run_id, "windows:coordinator"))
    assert await claiming.until_free(asyncio.Event())
    before = await stored(run)
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await step_until_idle(coordinating)

    await fall_back(run, before)
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", germinate())
    await step_until_idle(coordinating)

    assert (await run.decisions())[-1].startswith("Proposal")


async def test_what_was_judged_is_not_judged_again_where_the_windows_and_a_group_are_gone(run: Run) -> None:
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [entry] = await run.put("commands", germinate())
    await step_until_idle(coordinating)
    await run.put("votes", vote(0), vote(1))
    await step_until_idle(coordinating)

    await run.redis.delete(coordinating.windows.hash_key)
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await step_until_idle(coordinating)
    await run.redis.xgroup_destroy(names.key(run.run_id, "commands"), "coordinator")
    await notice(coordinating, "commands")
    await run.put("heartbeats", heartbeat(0, 20, applied=1), heartbeat(1, 20, applied=1))
    await step_until_idle(coordinating)

    assert await run.receipts() == [("s0-1", entry, "NONE")]
    assert (await run.decisions())[0:2] == ["Proposal 1", "Commit 1"]
    assert "Proposal 2" not in await run.decisions()


async def test_a_leader_goes_above_a_token_that_ranks_have_met_and_redis_has_lost(run: Run) -> None:
    """As where the clock that the one before it went by was ahead: its word alone counts for those who heard it."""
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", germinate())
    await step_until_idle(coordinating)

    ahead = heartbeat(0)
    ahead.lease_token = 1 << 60
    await run.put("heartbeats", ahead)
    await step_until_idle(coordinating)
    await run.put("heartbeats", ahead)
    await step_until_idle(coordinating)

    said = await run.said("decisions", Domain.DECISION)
    kinds = [(type(each).__name__, each.lease_token > 1 << 60) for each in said if isinstance(each, Said)]
    assert kinds == [
        ("LeaderAnnouncement", False),
        ("BarrierProposal", False),
        ("LeaderAnnouncement", True),
        ("BarrierAbort", True),
        ("BarrierProposal", True),
    ]


async def test_a_group_that_is_destroyed_judges_nothing_twice(run: Run) -> None:
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [entry] = await run.put("commands", germinate())
    await step_until_idle(coordinating)
    await run.put("votes", vote(0), vote(1))
    await step_until_idle(coordinating)

    await run.redis.xgroup_destroy(names.key(run.run_id, "commands"), "coordinator")
    await step_until_idle(coordinating)
    await step_until_idle(await run.coordinator())

    assert await run.receipts() == [("s0-1", entry, "NONE")]
    assert await num_pending(run.redis, names.key(run.run_id, "commands"), "coordinator") == 0


async def test_a_coordinator_that_is_replaced_while_it_serves_ends_with_one_error(run: Run) -> None:
    old = await run.coordinator()
    serving = asyncio.create_task(old.serve(asyncio.Event()))
    await until(lambda: is_at_work(run, old))

    await run.coordinator()
    await run.put("heartbeats", heartbeat(0))
    with pytest.raises(ReplacedError, match="another process has taken over"):
        await asyncio.wait_for(serving, DEADLINE_S)


async def test_of_ever_so_many_commands_some_thousand_wait_here_and_all_are_judged(run: Run) -> None:
    num = 6 * MOST_WAITING
    serving, stopping = await run.coordinator(), asyncio.Event()
    task = asyncio.create_task(serving.serve(stopping))
    for start in range(0, num, 500):
        async with run.redis.pipeline(transaction=False) as pipe:
            for number in range(start, start + 500):
                sealed = run.sealers["commands"].seal(germinate(f"s{number}"))
                pipe.xadd(names.key(run.run_id, "commands"), {"m": sealed})
            await pipe.execute()
    await until(lambda: waits(serving))
    await until(lambda: is_held_back(serving))

    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    most = await vote_until_judged(run, serving, num)
    stopping.set()
    await asyncio.wait_for(task, DEADLINE_S)

    assert most < 4 * MOST_WAITING
    assert not serving.inboxes["commands"].held_back


async def vote_until_judged(run: Run, coordinating: CoordinatorLoop, num: int) -> int:
    """Vote in each round until so many commands were answered; the most that were in hand."""
    most, voted = 0, 0
    async with asyncio.timeout(DEADLINE_S):
        while await run.redis.xlen(names.key(run.run_id, "receipts")) < num:
            most = max(most, in_hand(coordinating))
            proposals = [each for each in await run.said("decisions", Domain.DECISION) if hasattr(each, "roster")]
            if len(proposals) > voted:
                voted += 1
                votes = [vote(rank, 10 + 20 * voted, number=voted) for rank in (0, 1)]
                await run.put("votes", *votes)
            await run.put(
                "heartbeats", heartbeat(0, 20 * voted, applied=voted), heartbeat(1, 20 * voted, applied=voted)
            )
    return most


def in_hand(coordinating: CoordinatorLoop) -> int:
    return len(coordinating._held)


async def waits(coordinating: CoordinatorLoop) -> bool:
    return not coordinating.rule.has_room("commands")


async def is_held_back(coordinating: CoordinatorLoop) -> bool:
    return coordinating.inboxes["commands"].held_back


async def is_at_work(run: Run, coordinating: CoordinatorLoop) -> bool:
    """Whether this coordinator is in charge and has made its groups."""
    holder: Any = await run.redis.hget(coordinating.windows.hash_key, "version")
    has_groups = bool(await run.redis.exists(names.key(run.run_id, "heartbeats")))
    return has_groups and bytes(holder or b"").startswith(coordinating.windows.holder.encode())
