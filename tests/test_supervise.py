"""Children of a supervisor: their death is told at once, and none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from esper.runtime.supervise import ProcessDiedError, Supervisor, last_lines

SAY_AND_STAY = "import sys, signal; print('up', flush=True); signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
BROKEN = "import sys; sys.exit('port 80 is taken')"
PARENT = (
    "import subprocess, sys, signal;"
    f"child = subprocess.Popen([sys.executable, '-c', {DEAF!r}]); print(child.pid, flush=True); signal.pause()"
)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(tmp_path, grace_s=0.1)
    yield supervisor
    await supervisor.stop()


async def said(log: Path) -> str:
    """What a child has said, once it has said something."""
    while not log.read_text():
        await asyncio.sleep(0)
    return log.read_text()


def lives(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].startswith(b" Z")
    except (FileNotFoundError, ProcessLookupError):
        return False


async def never() -> None:
    await asyncio.Event().wait()


async def test_a_child_that_fails_ends_the_work_with_its_last_words(supervisor: Supervisor, tmp_path: Path) -> None:
    await supervisor.start("good", python(SAY_AND_STAY))
    await supervisor.start("bad", python(BROKEN))

    with pytest.raises(ProcessDiedError) as died:
        await supervisor.guard(never())

    assert (died.value.name, died.value.exit_code) == ("bad", 1)
    assert "port 80 is taken" in str(died.value)
    assert str(tmp_path / "bad.log") in str(died.value)


async def test_a_child_that_ends_well_too_early_is_an_error(supervisor: Supervisor) -> None:
    await supervisor.start("worker", python("pass"))

    with pytest.raises(ProcessDiedError, match="worker ended with exit code 0"):
        await supervisor.guard(never())


async def test_a_child_that_the_work_itself_started_is_watched_too(supervisor: Supervisor) -> None:
    async def start_and_wait() -> None:
        await supervisor.start("late", python(BROKEN))
        await never()

    with pytest.raises(ProcessDiedError, match="late ended with exit code 1"):
        await supervisor.guard(start_and_wait())


async def test_a_child_killed_by_a_signal_is_said_so(supervisor: Supervisor) -> None:
    child = await supervisor.start("worker", python(SAY_AND_STAY))
    await said(child.log)

    os.kill(child.process.pid, signal.SIGKILL)

    with pytest.raises(ProcessDiedError, match="signal SIGKILL"):
        await supervisor.guard(never())


async def test_a_child_that_may_end_is_awaited(supervisor: Supervisor) -> None:
    await supervisor.start("script", python("print('done')"), may_end=True)

    await supervisor.ended("script")

    assert await supervisor.guard(asyncio.sleep(0, "still well")) == "still well"


async def test_an_error_of_the_work_itself_comes_through(supervisor: Supervisor) -> None:
    async def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await supervisor.guard(fail())


async def test_stop_ends_the_deaf_and_grandchildren_too(supervisor: Supervisor) -> None:
    deaf = await supervisor.start("deaf", python(DEAF))
    parent = await supervisor.start("parent", python(PARENT))
    await said(deaf.log)
    grandchild = int((await said(parent.log)).split()[0])

    await supervisor.stop()

    assert not any(map(lives, (deaf.process.pid, parent.process.pid, grandchild)))


def test_children_end_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        "from esper.runtime.supervise import Supervisor\n"
        "async def main():\n"
        f"    supervisor = Supervisor(pathlib.Path({str(tmp_path)!r}))\n"
        f"    child = await supervisor.start('c', [sys.executable, '-c', {SAY_AND_STAY!r}])\n"
        "    while not child.log.read_text(): await asyncio.sleep(0)\n"
        "    print(child.process.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(python(script), stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        child = int(supervisor.stdout.readline())

        supervisor.kill()

    deadline = time.monotonic() + 5.0
    while lives(child) and time.monotonic() < deadline:
        os.sched_yield()
    assert not lives(child)


def test_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))

    assert last_lines(log, 2) == ["line 9998", "line 9999"]


async def test_the_child_that_died_first_is_named_whatever_died_of_it(supervisor: Supervisor, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"import os\nwhile not os.path.exists({str(go)!r}): pass\nraise SystemExit(4)"
    follower = await supervisor.start("follower", python(wait))
    await supervisor.start("first", python(BROKEN))
    with pytest.raises(ProcessDiedError):
        await supervisor.guard(never())

    go.touch()
    await follower.process.wait()

    with pytest.raises(ProcessDiedError) as died:
        supervisor.raise_if_died()
    assert died.value.name == "first"
