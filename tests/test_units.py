"""Processes that live and die together: started again by policy, within limits, and ended in order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from esper.runtime.crew.procs import is_left, look
from esper.runtime.crew.runfile import Limits, Restart
from esper.runtime.crew.spawn import NotStartedError, Program
from esper.runtime.crew.unit import NotAskedError, Plan, State, Unit
from tests.crew_kit import AT_ONCE, STAY, Said, one_port, unit, while_tended

HOW = {"ended_with": "exit code 3"}
TRIED = {"starts": 3, "limit": 2}


async def test_what_keeps_dying_is_started_again_and_then_given_up(tmp_path: Path) -> None:
    said = Said()
    loop = unit(tmp_path, said, "loop", "echo tried; exit 3")

    await loop.tend()

    assert loop.state is State.FAILED
    assert (tmp_path / "loop.log").read_text().splitlines() == ["tried"] * 3
    assert (loop.restarts.num_restarts, loop.last_end) == (2, "exit code 3")
    assert said.of("loop").count("died") == 2 and said.of("loop")[-2:] == ["given_up", "failed"]


async def test_what_is_never_ready_is_given_up_however_long_each_start_takes(tmp_path: Path) -> None:
    said, slow = Said(), Restart(first_s=0.01, limit=2, window_s=0.0)  # each death is the only one in its window
    never = unit(tmp_path, said, "never", "exit 3", tells_ready=True, restart=slow)

    await never.tend()

    assert never.state is State.FAILED
    assert said.events[-2] == (
        "process.given_up",
        {"unit": "never", "process": "never", **TRIED, **HOW, "ever_ready": False, "ever_worked": False},
    )


async def test_a_trainer_that_never_trains_a_step_is_given_up_though_it_is_ready_each_time(tmp_path: Path) -> None:
    said, slow = Said(), Restart(first_s=0.01, limit=2, window_s=0.0)
    first_step = unit(tmp_path, said, "first_step", "exit 3", trains=True, restart=slow)

    await first_step.tend()

    assert said.of("first_step").count("ready") == 3
    assert said.events[-2] == (
        "process.given_up",
        {"unit": "first_step", "process": "first_step", **TRIED, **HOW, "ever_ready": True, "ever_worked": False},
    )


async def test_what_was_ready_once_is_started_again_after_any_number_of_windows(tmp_path: Path) -> None:
    said, slow = Said(), Restart(first_s=0.01, limit=2, window_s=0.0)
    server = unit(tmp_path, said, "server", "exit 3", restart=slow)  # ready as soon as it is started

    assert await while_tended(server, said.until("process.died", times=5)) is State.STOPPED
    assert "given_up" not in said.of("server")


async def test_what_was_killed_is_started_again(tmp_path: Path) -> None:
    said = Said()
    stays = unit(tmp_path, said, "stays", STAY)

    async def kill() -> None:
        await said.until("process.ready")
        os.kill(stays.processes["stays"].pid, signal.SIGKILL)
        await said.until("process.ready", times=2)

    assert await while_tended(stays, kill()) is State.STOPPED
    assert stays.last_end == "signal SIGKILL"


async def test_a_server_that_ends_by_itself_has_died_and_a_trainer_is_done(tmp_path: Path) -> None:
    server, trainer = (unit(tmp_path, Said(), name, "exit 0", may_end=may) for name, may in (("s", False), ("t", True)))

    await server.tend()
    await trainer.tend()

    assert (server.state, trainer.state) == (State.FAILED, State.DONE)
    assert trainer.restarts.num_restarts == 0


async def test_ranks_of_a_group_are_started_again_together_each_time_with_a_new_port(tmp_path: Path) -> None:
    said, ports = Said(), iter(range(100))
    group = unit(
        tmp_path,
        said,
        "group",
        f'while [ ! -e {tmp_path}/up.$PORT ]; do sleep 0.01; done; echo "$PORT"; exit 1',
        f'echo "$PORT"; : > {tmp_path}/up.$PORT; {STAY}',
        may_end=True,
        fresh=lambda: {"PORT": str(next(ports))},
    )

    await group.tend()

    assert group.state is State.FAILED
    assert not any(is_left(process.pid) for process in group.processes.values())
    assert (tmp_path / "group-0.log").read_text().split() == ["0", "1", "2"]
    assert (tmp_path / "group-1.log").read_text().split() == (tmp_path / "group-0.log").read_text().split()


async def test_a_rank_that_is_done_waits_for_the_others(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    group = unit(tmp_path, Said(), "group", "exit 0", f"read line < {tmp_path}/fifo; exit 0", may_end=True)
    task = asyncio.create_task(group.tend())
    while not group.processes or group.processes["group-0"].returncode is None:
        await asyncio.sleep(0)

    assert not task.done()
    (tmp_path / "fifo").write_text("go\n")
    await task

    assert group.state is State.DONE


async def test_one_that_is_deaf_is_killed_after_its_time_and_that_is_said(tmp_path: Path) -> None:
    said = Said()
    deaf = unit(tmp_path, said, "deaf", "trap '' TERM; echo up; while :; do sleep 600; done", stop_s=0.1)

    async def heard() -> None:
        await said.until("process.ready")
        while not (tmp_path / "deaf.log").read_text():
            await asyncio.sleep(0)

    assert await while_tended(deaf, heard()) is State.STOPPED
    assert deaf.was_killed
    assert ("process.killed", {"unit": "deaf", "waited_s": 0.1}) in said.events
    assert not is_left(deaf.processes["deaf"].pid)


async def test_a_trainer_that_looks_at_its_file_ends_by_it(tmp_path: Path) -> None:
    said, stop = Said(), tmp_path / "stop"
    trainer = unit(
        tmp_path,
        said,
        "trainer",
        f"trap 'echo signalled' TERM; while [ ! -e {stop} ]; do sleep 0.01; done; echo ended",
        may_end=True,
        stop_file=stop,
        finish_s=30.0,
    )

    assert await while_tended(trainer, said.until("process.ready")) is State.STOPPED
    assert (tmp_path / "trainer.log").read_text() == "ended\n"
    assert not stop.exists()


async def test_started_anew_it_does_not_meet_the_file_that_ended_it(tmp_path: Path) -> None:
    said, stop = Said(), tmp_path / "stop"
    stop.touch()
    trainer = unit(tmp_path, said, "trainer", f"[ -e {stop} ] && exit 9; {STAY}", stop_file=stop, finish_s=0.0)

    assert await while_tended(trainer, said.until("process.ready")) is State.STOPPED
    assert trainer.last_end == ""


async def test_limits_hold_in_the_process(tmp_path: Path) -> None:
    from esper.cli.running.plan import words

    told = words(Limits(nice=7, open_files=64, memory_mb=512, core_mb=0, cpu_s=99))
    script = "nice; ulimit -n; ulimit -d; ulimit -c; ulimit -t"
    programs = (Program("bound", ["sh", "-c", script], {}, told),)
    bound = Unit(Plan("bound", "bound", programs, AT_ONCE, may_end=True, tells_ready=False), tmp_path, {}, Said())

    bound.begin()
    await bound.tend()

    nice = str(min(19, os.nice(0) + 7))
    assert (tmp_path / "bound.log").read_text().split() == [nice, "64", str(512 * 1024), "0", "99"]


async def test_a_variable_that_it_is_to_go_without_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONE", "of whoever starts it")
    monkeypatch.setenv("OTHER", "kept")
    programs = (Program("told", ["sh", "-c", 'echo "$ONE,$OTHER"'], without=("ONE",)),)
    told = Unit(Plan("told", "told", programs, AT_ONCE, may_end=True, tells_ready=False), tmp_path, {}, Said())

    told.begin()
    await told.tend()

    assert (tmp_path / "told.log").read_text() == ",kept\n"


async def test_a_command_that_is_not_there_says_so_in_its_log(tmp_path: Path) -> None:
    programs = (Program("none", ["/nowhere/to/be/found"]),)
    none = Unit(Plan("none", "none", programs, Restart(limit=0)), tmp_path, {}, Said())

    none.begin()
    await none.tend()

    assert (tmp_path / "none.log").read_text() == "/nowhere/to/be/found cannot be started: No such file or directory\n"


async def test_what_can_not_be_started_leaves_nothing_of_its_unit_behind(tmp_path: Path) -> None:
    (tmp_path / "group-1.log").mkdir()
    group = unit(tmp_path, Said(), "group", STAY, STAY)

    with pytest.raises(NotStartedError, match=r"group-1 can't be started with its log at .*: Is a directory"):
        await group.tend()

    assert [is_left(process.pid) for process in group.processes.values()] == [False]


async def test_a_unit_is_ready_once_each_of_its_processes_has_said_so(tmp_path: Path) -> None:
    group, states = unit(tmp_path, Said(), "group", STAY, STAY, tells_ready=True), []

    async def tell() -> None:
        while not group.processes:
            await asyncio.sleep(0)
        [first] = [process.pid for process in group.processes.values()]
        group.on_ready(first)
        states.append(group.state)
        while len(group.processes) < 2:
            await asyncio.sleep(0)
        group.on_ready(group.processes["group-1"].pid)
        states.append(group.state)

    await while_tended(group, tell())

    assert states == [State.STARTING, State.READY]


def test_a_process_whose_name_is_no_text_is_seen_as_any_other() -> None:
    code = (
        "import ctypes, signal\n"
        "ctypes.CDLL(None).prctl(15, b'\\xff) Z', 0, 0, 0)\n"  # PR_SET_NAME
        "print('up', flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"

        found = look(process.pid)
        process.kill()

    assert found is not None
    assert (found.parent, found.is_zombie, found.rss_bytes > 100_000) == (os.getpid(), False, True)


async def test_a_signal_without_a_name_ends_a_process_as_any_other(tmp_path: Path) -> None:
    killed = unit(tmp_path, Said(), "killed", "kill -40 $$", restart=Restart(limit=0))

    await killed.tend()

    assert (killed.state, killed.last_end) == (State.FAILED, "signal 40")


async def test_where_its_file_can_not_be_made_a_trainer_is_ended_by_signal(tmp_path: Path) -> None:
    said = Said()
    trainer = unit(tmp_path / "logs", said, "trainer", STAY, stop_file=tmp_path / "gone" / "stop", finish_s=600.0)

    assert await while_tended(trainer, said.until("process.ready")) is State.STOPPED

    assert "unasked" in said.of("trainer")
    assert not is_left(trainer.processes["trainer"].pid)


async def test_one_whose_file_can_not_be_taken_away_is_given_up_as_others_are(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    trainer = unit(tmp_path, Said(), "trainer", f"rmdir {folder}; touch {folder}; exit 3", stop_file=folder / "stop")

    await trainer.tend()

    assert (trainer.state, trainer.last_end) == (State.FAILED, "exit code 3")


def test_one_that_can_not_be_asked_by_its_file_is_said_so(tmp_path: Path) -> None:
    stop = tmp_path / "gone" / "stop"
    trainer = unit(tmp_path, Said(), "trainer", STAY, stop_file=stop)

    with pytest.raises(NotAskedError, match=f"trainer can't be asked to end by its file {stop}: No such file"):
        trainer.let_end()


async def test_a_start_that_fails_later_on_counts_as_one_more_death(tmp_path: Path) -> None:
    said, log = Said(), tmp_path / "loop.log"
    loop = unit(tmp_path, said, "loop", f"rm {log}; mkdir {log}; exit 3")

    await loop.tend()

    assert loop.state is State.FAILED
    assert [facts["ended_with"] for event, facts in said.events if event == "process.died"] == [
        "exit code 3",
        f"loop can't be started with its log at {log}: Is a directory",
    ]
    assert "Is a directory" in str(loop.death())


async def test_a_restart_without_a_port_that_is_free_counts_as_one_more_death(tmp_path: Path) -> None:
    said = Said()
    loop = unit(tmp_path, said, "loop", "exit 3", restart=Restart(first_s=0.0, limit=1), fresh=one_port())

    await loop.tend()

    assert loop.state is State.FAILED
    assert str(loop.death()) == f"loop can't be started with its log at {tmp_path}/loop.log: Too many open files"


async def test_one_that_has_ended_kills_nobody_who_bears_its_number_by_now(tmp_path: Path) -> None:
    done = unit(tmp_path, Said(), "done", "exit 0", may_end=True)
    await done.tend()
    stranger = await asyncio.create_subprocess_exec("sleep", "600", start_new_session=True)
    done.processes["done"] = stranger  # the kernel hands out a number again once its process is buried

    done.hurry()

    assert is_left(stranger.pid) and not done.was_killed
    stranger.kill()
    await stranger.wait()


async def test_a_death_is_told_also_without_its_log(tmp_path: Path) -> None:
    broken = unit(tmp_path, Said(), "broken", f"rm {tmp_path}/broken.log; exit 3", restart=Restart(limit=0))

    await broken.tend()

    assert "broken ended with exit code 3" in str(broken.death())
    assert "it said nothing" in str(broken.death())
