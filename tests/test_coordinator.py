"""A command gets one decision and one receipt through a real Redis, also when the coordinator dies in between."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
import structlog
from google.protobuf.message import Message

from esper.bus import names, tail
from esper.bus.connect import server_ms
from esper.errors import StaleLeaseError
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener
from esper.leyline.succession import Decision
from esper.runtime.coordinator.loop import LOGS
from tests.altered import altered
from tests.bus_kit import drain, num_pending
from tests.coordinator_kit import Run, killed_before_settling, run, step_until_idle
from tests.rounds import germinate, heartbeat, vote

__all__ = ["run"]


async def test_a_command_is_answered_once_and_nothing_stays_pending(run: Run) -> None:
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    good, bad = await run.put("commands", germinate(), germinate("s1", site="hed"))

    await step_until_idle(coordinating)
    await run.put("votes", vote(0), vote(1))
    await step_until_idle(coordinating)

    assert await run.decisions() == ["Proposal 1", "Commit 1"]
    assert await run.receipts() == [("s0-1", good, "NONE"), ("s1-1", bad, "UNKNOWN_SITE")]
    assert [await num_pending(run.redis, names.key(run.run_id, log), "coordinator") for log in LOGS] == [0] * 4
    shown = coordinating.figures
    assert shown.rounds == {"committed": 1, "aborted": 0} and [*shown.heard_s] == ["worker-0", "worker-1"]
    assert shown.verdicts == {("accepted", ""): 1, ("rejected", "unknown_site"): 1}


async def test_a_command_is_answered_once_though_the_coordinator_died_before_it_settled(run: Run) -> None:
    first = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    [entry] = await run.put("commands", germinate())
    await step_until_idle(first)
    await run.put("votes", vote(0), vote(1))

    await killed_before_settling(first)
    second = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await step_until_idle(second)
    await run.put("votes", vote(0, number=2), vote(1, number=2))
    await step_until_idle(second)
    third = await run.coordinator()
    await step_until_idle(third)

    assert await run.decisions() == ["Proposal 1", "Abort 1", "Proposal 2", "Commit 2"]
    assert await run.receipts() == [("s0-1", entry, "NONE")]


async def test_a_coordinator_that_was_replaced_can_decide_nothing_more(run: Run) -> None:
    old = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", germinate())
    await step_until_idle(old)
    await run.put("votes", vote(0), vote(1))
    votes = await drain(old.inboxes["votes"])

    await run.coordinator()
    with pytest.raises(StaleLeaseError):
        await old.step(votes)

    assert await run.decisions() == ["Proposal 1", "Abort 1"]
    assert await run.receipts() == []


async def test_a_refused_envelope_gets_one_receipt_that_believes_nothing_of_it(run: Run) -> None:
    coordinating = await run.coordinator()
    sealed = run.sealers["commands"].seal(germinate())
    forged = altered(sealed)

    entries = [await run.put_bytes("commands", data) for data in (forged, sealed, sealed, b"junk")]
    await run.put_bytes("votes", b"junk")
    await step_until_idle(coordinating)
    await step_until_idle(await run.coordinator())

    assert await run.receipts() == [
        ("", entries[0], "BAD_SEAL"),
        ("", entries[2], "REPLAYED"),
        ("", entries[3], "MALFORMED"),
    ]
    assert await run.redis.xlen(names.key(run.run_id, "dead")) == 4
    kept = await run.redis.execute_command("XRANGE", names.key(run.run_id, "commands"), "-", "+")
    assert [fields[b"m"] for _, fields in kept] == [sealed, sealed]  # what no key has sealed is gone


async def test_a_replay_is_known_after_a_restart(run: Run) -> None:
    sealed = run.sealers["commands"].seal(germinate())
    await run.put_bytes("commands", sealed)
    await step_until_idle(await run.coordinator())

    again = await run.put_bytes("commands", sealed)
    await step_until_idle(await run.coordinator())

    assert await run.receipts() == [("", again, "REPLAYED")]


async def next_decision(run: Run, since: str) -> tuple[str, Message]:
    opener = Opener(run.master.derive(run.run_id, [Role.OBSERVER]), guard=None, accept=[Domain.DECISION])
    stream = tail.follow(run.redis_reader, names.key(run.run_id, "decisions"), since)
    async with aclosing(stream) as entries:
        async for entry_id, body in entries:
            message = opener.open(body, entry_id, await server_ms(run.redis)).message
            if isinstance(message, Decision):
                return entry_id, message
    raise AssertionError("a stream that is followed has no end")


async def test_the_loop_decides_rounds_until_it_is_told_to_stop(run: Run) -> None:
    stopping, coordinating = asyncio.Event(), await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", germinate())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(coordinating.serve(stopping))
        position, proposal = await next_decision(run, "0")
        await run.put("votes", vote(0), vote(1))
        _, commit = await next_decision(run, position)
        stopping.set()

    assert [type(proposal).__name__, type(commit).__name__] == ["BarrierProposal", "BarrierCommit"]


def gaps(lines: list[Any]) -> list[tuple[str, int, int]]:
    return [(line["producer"], line["first"], line["last"]) for line in lines if line["event"] == "sequence.gap"]


async def test_commands_that_redis_lost_are_told_by_number_also_after_a_restart(run: Run) -> None:
    lost = run.sealers["commands"].seal
    coordinating = await run.coordinator()
    await run.put("commands", germinate())
    await step_until_idle(coordinating)

    lost(germinate())
    lost(germinate())
    await run.put("commands", germinate())
    with structlog.testing.capture_logs() as first:
        await step_until_idle(coordinating)
    lost(germinate())
    await run.put("commands", germinate())
    with structlog.testing.capture_logs() as second:
        await step_until_idle(await run.coordinator())

    assert gaps(first) == [("controller-of-commands", 2, 3)]
    assert gaps(second) == [("controller-of-commands", 5, 5)]
    assert coordinating.missing.num_missing == 2


async def test_a_command_that_is_refused_for_its_age_is_not_told_as_lost(run: Run) -> None:
    coordinating = await run.coordinator()
    stale = run.sealers["commands"].seal(germinate())
    now_ms = await server_ms(run.redis)
    await run.redis.execute_command("XADD", names.key(run.run_id, "commands"), f"{now_ms - 61_000}-0", "m", stale)
    await run.put("commands", germinate())

    with structlog.testing.capture_logs() as lines:
        await step_until_idle(coordinating)

    assert gaps(lines) == []
    assert "FROM_THE_FUTURE" in {reason for _, _, reason in await run.receipts()}
