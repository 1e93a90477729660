"""`esper publish` ends within its timeout, and says whether what it asked for may take effect all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from esper.bus import connect
from esper.bus.embedded import EmbeddedRedis
from esper.cli import waiting
from esper.cli.waiting import Deadline, UnseenError
from esper.client import Controller
from tests.bus_kit import standing_still
from tests.cli_kit import called
from tests.scripted import WORKERS, ScriptedRun, accepted, listed

SHORT_S = 0.2


@pytest.fixture
async def run(
    server: EmbeddedRedis, short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ScriptedRun]:
    """A run on a Redis of its own."""
    async with connect.writer(server.url) as redis:
        with listed(short_directory, server.url, redis, monkeypatch) as scripted:
            yield scripted


async def test_a_redis_that_hangs_from_the_start_has_taken_no_command(run: ScriptedRun, server: EmbeddedRedis) -> None:
    words = ["publish", "pause", "--run", run.name, "--timeout", f"{SHORT_S}"]

    with standing_still(server):
        status, out, errors = await called(*words)

    assert (status, out) == (2, "")
    assert errors == "esper: Redis gave no answer in 0.2 s; nothing was published\n"


async def test_a_redis_that_hangs_at_the_command_may_have_taken_it(run: ScriptedRun, server: EmbeddedRedis) -> None:
    deadline = Deadline(SHORT_S)

    async with Controller.connect(run.name) as controller:
        with standing_still(server), pytest.raises(UnseenError) as caught:
            async with deadline.sending(controller):
                await controller.within(SHORT_S).pause()

    assert str(caught.value) == (
        "no answer in 0.2 s, nor does Redis answer; the command may be on its stream all the same, and is void "
        "(past_deadline) unless it is accepted within 0.2 s of being sent: `esper audit` tells"
    )


async def test_without_a_time_a_command_that_is_lost_may_yet_take_effect(
    run: ScriptedRun, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esper.client.PATIENCE_S", 0.0)

    async with Controller.connect(run.name) as controller:
        server.kill()
        with pytest.raises(UnseenError) as caught:
            async with Deadline(None).sending(controller):
                await controller.pause()

    assert caught.value.fate == "the command may be on its stream all the same: `esper audit` tells"
    assert server.url in str(caught.value)


async def test_a_redis_that_hangs_before_the_verdict_is_named_beside_the_coordinator(
    run: ScriptedRun, server: EmbeddedRedis
) -> None:
    async with Controller.connect(run.name) as controller:
        receipt = await controller.pause()
        with standing_still(server), pytest.raises(UnseenError) as caught:
            await Deadline(SHORT_S).accepted(controller, receipt)

    assert str(caught.value) == (
        f"command {receipt.command_id}: no answer after 0.2 s from coordinator, nor does Redis answer; "
        "accepted later it is void (past_deadline): `esper audit` tells"
    )


async def test_what_was_accepted_takes_effect_though_redis_hangs_since(run: ScriptedRun, server: EmbeddedRedis) -> None:
    async with Controller.connect(run.name) as controller:
        receipt = await controller.pause()
        await run.answer(accepted(receipt.command_id, receipt.entry_id))
        acceptance = await receipt.accepted()
        with standing_still(server), pytest.raises(UnseenError) as caught:
            await Deadline(SHORT_S).applied(controller, receipt, acceptance)

    assert str(caught.value) == (
        f"command {receipt.command_id}: no answer after 0.2 s from 2 workers not yet heard of, nor does Redis answer; "
        "it was accepted, and takes effect on each that comes to step 108"
    )


async def test_a_rank_that_is_late_is_named_alone_where_redis_answers(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_S", 60.0)
    monkeypatch.setattr("esper.runtime.watching.receipts.ROSTER_S", 60.0)
    await run.beat(1)
    async with Controller.connect(run.name) as controller:
        receipt = await controller.pause()
        await run.apply(receipt.command_id, receipt.entry_id, WORKERS[0])
        acceptance = await receipt.accepted()
        while not receipt.outcomes:
            await asyncio.sleep(0.01)
        with pytest.raises(UnseenError) as caught:
            await Deadline(SHORT_S).applied(controller, receipt, acceptance)

    assert "after 0.2 s from worker-1; it was accepted" in str(caught.value)


async def test_each_attempt_is_waited_for_as_long_as_is_said(run: ScriptedRun) -> None:
    words = ["publish", "pause", "--run", run.name, "--attempts", "2", "--timeout", "0"]

    status, out, errors = await called(*words)

    assert (status, out) == (2, "")
    assert errors.endswith(": no answer after 0 s from coordinator\n")
