"""The process that died first is named with its last words, and none outlives who started it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from esper.runtime.crew.crash_report import ProcessDiedError, last_lines
from esper.runtime.crew.procs import is_left
from esper.runtime.crew.runfile import Restart
from tests.crew_kit import STAY, Said, unit, while_tended

NEVER = Restart(limit=0)
UNTIL_TOLD = "trap 'exit 7' TERM; while :; do sleep 0.01; done"


async def test_the_rank_that_died_first_is_named_whatever_the_others_died_of(tmp_path: Path) -> None:
    said = Said()
    group = unit(tmp_path, said, "group", UNTIL_TOLD, "echo 'port 80 is taken'; exit 4", restart=NEVER)

    await group.tend()

    assert group.processes["group-0"].returncode not in (0, None)
    death = group.death()
    assert isinstance(death, ProcessDiedError)
    assert (death.name, death.exit_code, group.last_end) == ("group-1", 4, "exit code 4")
    assert str(death).endswith(f"the end of {tmp_path}/group-1.log:\n  port 80 is taken")


async def test_one_killed_by_a_signal_is_said_so(tmp_path: Path) -> None:
    said = Said()
    stays = unit(tmp_path, said, "stays", STAY, restart=NEVER)

    async def kill() -> None:
        await said.until("process.ready")
        os.kill(stays.processes["stays"].pid, signal.SIGKILL)
        await said.until("process.failed")

    await while_tended(stays, kill())

    assert str(stays.death()).startswith("stays ended with signal SIGKILL; the end of")
    assert str(stays.death()).endswith("it said nothing")


async def test_a_trainer_that_ends_before_it_may_has_died_and_asked_by_its_file_it_is_done(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    script = f"while [ ! -e {stop} ]; do sleep 0.01; done"
    early = unit(tmp_path, Said(), "early", "exit 0", restart=NEVER, may_end=False)
    said = Said()
    asked = unit(tmp_path, said, "asked", script, restart=NEVER, may_end=False, stop_file=stop)

    await early.tend()
    tending = asyncio.create_task(asked.tend())
    await said.until("process.ready")
    asked.let_end()
    await tending

    assert str(early.state) == "failed" and str(early.death()).startswith("early ended with exit code 0")
    assert str(asked.state) == "done" and not asked.was_killed


def test_processes_end_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib\n"
        "from esper.runtime.crew.spawn import Program, spawn\n"
        "async def main():\n"
        f"    log = pathlib.Path({str(tmp_path / 'child.log')!r})\n"
        f"    child = await spawn(Program('child', ['sh', '-c', 'echo up; {STAY}']), log)\n"
        "    while not log.read_text(): await asyncio.sleep(0)\n"
        "    print(child.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", script], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        child = int(supervisor.stdout.readline())

        supervisor.kill()

    deadline = time.monotonic() + 20.0
    while is_left(child) and time.monotonic() < deadline:
        os.sched_yield()
    assert not is_left(child)


def test_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))

    assert last_lines(log, 2) == ["line 9998", "line 9999"]
