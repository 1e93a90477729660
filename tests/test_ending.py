"""A process ends though what it waits for never comes: a few seconds after its signal, or after its parent's death."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from esper.runtime.ending import meanwhile, orphaned
from esper.runtime.process import until_stopped

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdout=sys.stdout)
sys.stdin.readline()
"""
CHILD = """
import asyncio, os, sys
parent = os.getppid()
from esper.runtime.ending import orphaned
print("waits", flush=True)
while "already" in sys.argv and os.getppid() == parent:
    pass
asyncio.run(orphaned(parent, grace_s=0.0))
print("ended", flush=True)
"""


async def test_one_that_waits_for_ever_is_ended_after_its_signal() -> None:
    held: list[str] = []

    async def waits_for_ever(stopping: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await stopping.wait()
        held.append("drains")
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(until_stopped(waits_for_ever, drain_s=0.01))
    assert held == ["drains"]


async def test_one_that_drains_in_time_is_left_to_it() -> None:
    async def drains(stopping: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await stopping.wait()

    await asyncio.create_task(until_stopped(drains, drain_s=60.0))


@pytest.mark.parametrize("since", ["later", "already"])
def test_an_orphan_notices(since: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, since], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None and parent.stdout is not None
    assert parent.stdout.readline() == "waits\n"
    parent.stdin.close()
    parent.wait(120)
    assert parent.stdout.readline() == "ended\n"
    parent.stdout.close()


async def test_a_child_whose_parent_lives_waits_on() -> None:
    waiting = asyncio.create_task(orphaned(os.getppid(), grace_s=0.0))
    done, _ = await asyncio.wait([waiting], timeout=0.6)
    waiting.cancel()
    assert not done


async def fails() -> None:
    raise ValueError("it had a fault")


async def test_what_failed_in_the_background_is_logged_where_the_block_knows_nothing_of_it() -> None:
    with capture_logs() as logged:
        async with meanwhile(fails(), asyncio.Event().wait()) as tasks:
            await asyncio.wait(tasks[:1])

    [error] = [each for each in logged if each["log_level"] == "error"]
    assert (error["event"], error["why"]) == ("background.failed", "ValueError('it had a fault')")


async def test_a_block_that_raises_what_failed_has_said_it_already() -> None:
    with capture_logs() as logged, pytest.raises(ValueError, match="it had a fault"):
        async with meanwhile(fails()) as [task]:
            await task

    assert not [each for each in logged if each["log_level"] == "error"]
