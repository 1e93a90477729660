"""Commands that Redis has lost are refused by name, whenever they were read; what is added behind them is judged."""

from __future__ import annotations

import pytest

from esper.bus import names
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms
from esper.runtime.coordinator.loop import CoordinatorLoop
from tests.bus_kit import num_pending
from tests.coordinator_kit import Run, fall_back, lose_history, notice, run, step_until_idle, stored
from tests.rounds import germinate, heartbeat, vote

__all__ = ["run"]


@pytest.mark.parametrize("falls_back", [False, True], ids=["all is lost", "Redis falls back"])
async def test_no_commit_names_a_command_that_was_lost_before_the_last_vote(run: Run, falls_back: bool) -> None:
    """A rank that has not read it would find it on no log, and end."""
    coordinating, before = await run.coordinator(), await stored(run)
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [lost] = await run.put("commands", germinate())
    await step_until_idle(coordinating)
    await run.put("votes", vote(0))
    await step_until_idle(coordinating)

    if falls_back:
        await fall_back(run, before)
        interrupted(coordinating)
    else:
        await lose_history(run)
    await run.put("votes", vote(1))
    await coordinating.step(await read_on(coordinating.inboxes["votes"]))

    assert await run.receipts() == [("s0-1", lost, "CANCELLED")]
    assert [decided for decided in await run.decisions() if "Commit" in decided] == []


@pytest.mark.parametrize("falls_back", [False, True], ids=["all is lost", "Redis falls back"])
async def test_a_command_that_was_read_and_lost_before_it_was_looked_at_is_refused(run: Run, falls_back: bool) -> None:
    """As where a settlement keeps the loop waiting while the next commands come, and Redis goes."""
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await step_until_idle(coordinating)
    before = await stored(run)
    [lost] = await run.put("commands", germinate())
    read = await read_on(coordinating.inboxes["commands"])

    if falls_back:
        await fall_back(run, before)
        interrupted(coordinating)
    else:
        await lose_history(run)
        await read_on(coordinating.inboxes["votes"])
    await coordinating.step(read)

    assert await run.receipts() == [("s0-1", lost, "CANCELLED")]
    assert [decided for decided in await run.decisions() if "Proposal" in decided] == []


async def deleted_and_gone_on(run: Run, coordinating: CoordinatorLoop, judged: str, added: pb.AdaptationCommand) -> str:
    """The stream of the commands goes; another is added by a clock that is behind what was judged: its entry."""
    await run.redis.delete(names.key(run.run_id, "commands"))
    await notice(coordinating, "commands")
    behind = f"{entry_ms(judged) - 3_000}-0"
    sealed = run.sealers["commands"].seal(added)
    await run.redis.execute_command("XADD", names.key(run.run_id, "commands"), behind, "m", sealed)
    await run.put("heartbeats", heartbeat(0, 20, applied=1), heartbeat(1, 20, applied=1))
    await step_until_idle(coordinating)
    return behind


async def test_a_command_whose_stream_is_deleted_is_refused_and_those_after_it_are_judged(run: Run) -> None:
    """Though all else is there, and they are added by a clock behind."""
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [judged] = await run.put("commands", germinate("s0"))
    await step_until_idle(coordinating)
    await run.put("votes", vote(0), vote(1))
    [lost] = await run.put("commands", germinate("s1", site="hidden"))
    await step_until_idle(coordinating)

    behind = await deleted_and_gone_on(run, coordinating, judged, germinate("s2", site="hidden"))
    number = (await run.decisions())[-1].split()[-1]
    await run.put("votes", *[vote(rank, 20, number=int(number)) for rank in (0, 1)])
    await step_until_idle(coordinating)

    assert await run.receipts() == [("s0-1", judged, "NONE"), ("s1-1", lost, "CANCELLED"), ("s2-1", behind, "NONE")]
    assert await num_pending(run.redis, names.key(run.run_id, "commands"), "coordinator") == 0


async def test_what_is_added_to_a_log_that_was_deleted_is_judged_though_nothing_was_in_hand(run: Run) -> None:
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [judged] = await run.put("commands", germinate("s0"))
    await step_until_idle(coordinating)
    await run.put("votes", vote(0), vote(1))
    await step_until_idle(coordinating)

    await deleted_and_gone_on(run, coordinating, judged, germinate("s1", site="hidden"))

    assert (await run.decisions())[-1].startswith("Proposal")
    assert await run.receipts() == [("s0-1", judged, "NONE")]


async def test_what_is_added_to_a_log_that_is_gone_is_judged_by_the_next_leader_too(run: Run) -> None:
    first = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [judged] = await run.put("commands", germinate("s0"))
    await step_until_idle(first)
    await run.put("votes", vote(0), vote(1))
    await step_until_idle(first)

    await run.redis.delete(names.key(run.run_id, "commands"))
    second = await run.coordinator()
    behind = f"{entry_ms(judged) - 3_000}-0"
    sealed = run.sealers["commands"].seal(germinate("s1", site="hidden"))
    await run.redis.execute_command("XADD", names.key(run.run_id, "commands"), behind, "m", sealed)
    await run.put("heartbeats", heartbeat(0, 20, applied=1), heartbeat(1, 20, applied=1))
    await step_until_idle(second)

    assert (await run.decisions())[-1].startswith("Proposal")
    assert await run.receipts() == [("s0-1", judged, "NONE")]


async def read_on(inbox: Inbox) -> list[Delivery]:
    """What comes to a reader that has made its group long ago."""
    return [delivery async for batch in inbox.batches(until_idle=True) for delivery in batch]


def interrupted(coordinating: CoordinatorLoop) -> None:
    """As each reader is where the server ends."""
    for inbox in coordinating.inboxes.values():
        inbox.consumer._interrupted()
