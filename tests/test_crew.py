"""All units of a run: ended tier by tier, restarted one by one; one that all need ends the run when it is given up."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path

import pytest

from esper.errors import SettingError
from esper.runtime.crew.crash_report import ProcessDiedError
from esper.runtime.crew.crew import Crew, Notes, NotReadyError
from esper.runtime.crew.runfile import Restart
from esper.runtime.crew.spawn import NotStartedError
from esper.runtime.crew.unit import Plan, State, Unit
from esper.runtime.notify import READY, TRAINED, Notices
from tests.crew_kit import AT_ONCE, STAY, Said, plan, shell

NEVER = Restart(limit=0)
PYTHON = shlex.quote(sys.executable)


class Trial:
    """A crew whose notes, and whose waits for what is on its way, stand in one list."""

    def __init__(self, logs: Path, *tiers: list[Plan], ready_s: float = 30.0) -> None:
        self.said, self.notes = Said(), Notes()

        async def settled(role: str) -> None:
            self.said("tier.settled", unit=role)

        def both(event: str, **facts: object) -> None:
            self.said(event, **facts)
            self.notes(event, **facts)

        units = [[Unit(each, logs, {}, both) for each in tier] for tier in tiers]
        self.crew = Crew(units, settled, self.notes, ready_s)

    def order(self, *events: str) -> list[tuple[str, str]]:
        return [(facts["unit"], event) for event, facts in self.said.events if event in events]


async def test_tiers_end_one_after_the_other_and_each_waits_for_what_is_on_its_way(tmp_path: Path) -> None:
    trial = Trial(tmp_path, [plan("trainer", STAY)], [plan("a", STAY, role="regional")], [plan("global", STAY)])
    trial.crew.start()
    await trial.said.until("process.ready", times=3)

    assert await trial.crew.drain()

    ended = [(unit, event) for unit, event in trial.order("tier.settled", "process.stopped")]
    assert ended == [
        ("trainer", "tier.settled"),
        ("trainer", "process.stopped"),
        ("regional", "tier.settled"),
        ("a", "process.stopped"),
        ("global", "tier.settled"),
        ("global", "process.stopped"),
    ]


async def test_who_keeps_a_run_no_more_waits_for_nothing_that_comes_after(tmp_path: Path) -> None:
    trial, others = Trial(tmp_path, [plan("trainer", STAY)]), asyncio.all_tasks()
    trial.crew.start()
    keeping = asyncio.create_task(trial.crew.keep())
    await trial.said.until("process.ready")

    keeping.cancel()
    await asyncio.wait([keeping])
    await trial.crew.drain()

    assert asyncio.all_tasks() == others


async def test_a_run_ends_once_all_who_train_are_done(tmp_path: Path) -> None:
    done = plan("one", "exit 0", role="trainer", may_end=True)
    trial = Trial(tmp_path, [done], [plan("coordinator", STAY)])
    trial.crew.start()

    await trial.crew.keep()
    await trial.crew.drain()

    assert [unit.state for unit in trial.crew.units] == [State.DONE, State.STOPPED]


async def test_what_is_essential_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    broken = plan("global", "echo 'port 80 is taken'; exit 4", restart=NEVER)
    trial = Trial(tmp_path, [plan("trainer", STAY)], [broken])
    trial.crew.start()

    with pytest.raises(ProcessDiedError, match=r"(?s)global ended with exit code 4.*port 80 is taken"):
        await trial.crew.keep()
    await trial.crew.drain()

    assert trial.crew.units[0].state is State.STOPPED


async def test_what_is_not_essential_is_given_up_and_the_run_goes_on(tmp_path: Path) -> None:
    trial = Trial(tmp_path, [plan("x", "exit 4", restart=NEVER, essential=False)], [plan("global", STAY)])
    trial.crew.start()
    kept = asyncio.create_task(trial.crew.keep())

    await trial.said.until("process.given_up")
    await trial.said.until("process.ready", times=2)

    assert not kept.done()
    trial.crew.stopping.set()
    await kept
    await trial.crew.drain()
    assert [row["state"] for row in trial.crew.rows()] == ["failed", "stopped"]


async def test_a_rolling_restart_waits_until_each_is_ready(tmp_path: Path) -> None:
    units = [plan(f"regional-r{number}", STAY, role="regional") for number in range(2)]
    trial = Trial(tmp_path, units, [plan("global", STAY)])
    trial.crew.start()
    await trial.said.until("process.ready", times=3)
    pids = [row["pid"] for row in trial.crew.rows()]
    trial.said.events.clear()

    notes = [note async for note in trial.notes.while_doing(trial.crew.roll("regional"))]

    order = [(unit, event.partition(".")[2]) for unit, event in trial.order("process.stopping", "process.ready")]
    assert order == [(name, each) for name in ("regional-r0", "regional-r1") for each in ("stopping", "ready")]
    assert [note["unit"] for note in notes][-1] == "regional-r1"
    now = [row["pid"] for row in trial.crew.rows()]
    assert now[0] != pids[0] and now[1] != pids[1] and now[2] == pids[2]
    await trial.crew.drain()


async def test_a_rolling_restart_ends_at_the_first_that_is_not_ready(tmp_path: Path) -> None:
    silent = [plan(name, STAY, role="regional", tells_ready=False) for name in ("a", "b")]
    trial = Trial(tmp_path, silent, ready_s=0.05)
    trial.crew.start()
    await trial.said.until("process.ready", times=2)
    first, second = trial.crew.units
    first.plan = plan("a", STAY, role="regional", tells_ready=True)
    pid = second.processes["b"].pid

    with pytest.raises(NotReadyError, match=r"a is (stopping|starting), not ready; .*see .*a\.log"):
        await trial.crew.roll("regional")

    assert second.processes["b"].pid == pid
    await trial.crew.drain()


async def test_a_role_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    trial = Trial(tmp_path, [plan("regional-r0", STAY, role="regional")])

    with pytest.raises(SettingError, match="role is 'regionl'; expected one of regional, regional-r0"):
        await trial.crew.roll("regionl")


async def test_a_rank_is_started_anew_together_with_those_of_its_group(tmp_path: Path) -> None:
    trial = Trial(tmp_path, [plan("trainer", STAY, STAY)], [plan("global", STAY)])
    trial.crew.start()
    await trial.said.until("process.ready", times=2)
    before = {row["name"]: row["pid"] for row in trial.crew.rows()}

    await trial.crew.roll("trainer-1")

    after = {row["name"]: row["pid"] for row in trial.crew.rows()}
    assert {name for name in before if before[name] != after[name]} == {"trainer-0", "trainer-1"}
    await trial.crew.drain()


async def test_what_was_given_up_is_started_by_a_restart(tmp_path: Path) -> None:
    script = f"[ -e {tmp_path}/mended ] || exit 1; {STAY}"
    trial = Trial(tmp_path, [plan("exporter", script, restart=NEVER, essential=False)])
    trial.crew.start()
    await trial.said.until("process.failed")
    (tmp_path / "mended").touch()

    await trial.crew.roll("exporter")

    assert trial.crew.rows()[0]["state"] == "ready"
    await trial.crew.drain()


async def test_a_second_signal_waits_for_nobody(tmp_path: Path) -> None:
    deaf = "trap '' TERM; while :; do sleep 600; done"
    trial = Trial(tmp_path, [plan("trainer", deaf, stop_s=600.0)], [plan("global", deaf, stop_s=600.0)])
    trial.crew.start()
    await trial.said.until("process.ready", times=2)
    draining = asyncio.create_task(trial.crew.drain())
    await trial.said.until("process.stopping")

    trial.crew.hurry()

    assert not await draining, "they were killed, and that is told"
    assert [unit.state for unit in trial.crew.units] == [State.STOPPED] * 2


async def test_a_second_signal_does_not_wait_for_what_is_on_its_way_and_starts_nothing_again(tmp_path: Path) -> None:
    said, waits = Said(), asyncio.Event()

    async def never(role: str) -> None:
        waits.set()
        await asyncio.Event().wait()

    tiers = [[plan("regional", STAY)], [plan("global", STAY)]]
    crew = Crew([[Unit(each, tmp_path, {}, said) for each in tier] for tier in tiers], never, Notes(), 30.0)
    crew.start()
    await said.until("process.ready", times=2)
    draining = asyncio.create_task(crew.drain())
    await waits.wait()

    crew.hurry()

    assert not await draining
    assert [unit.state for unit in crew.units] == [State.STOPPED] * 2
    assert not {"died", "waiting"} & {*said.of("regional"), *said.of("global")}


async def test_a_run_that_ends_starts_nothing_anew(tmp_path: Path) -> None:
    trial = Trial(tmp_path, [plan("regional", STAY)], [plan("global", STAY)])
    trial.crew.start()
    await trial.said.until("process.ready", times=2)
    draining = asyncio.create_task(trial.crew.drain())
    await trial.said.until("process.stopped")

    with pytest.raises(SettingError, match="role is 'regional'; expected a run that goes on: this one ends"):
        await trial.crew.roll("regional")

    assert await draining
    assert [unit.state for unit in trial.crew.units] == [State.STOPPED] * 2


async def test_one_that_can_not_be_started_does_not_keep_the_others_from_ending(tmp_path: Path) -> None:
    (tmp_path / "a.log").mkdir()
    trial = Trial(tmp_path, [plan("a", STAY)], [plan("global", STAY)])
    trial.crew.start()
    await trial.said.until("process.ready")

    with pytest.raises(NotStartedError, match="a can't be started"):
        await trial.crew.drain()

    assert trial.crew.units[1].state is State.STOPPED and trial.crew.drained.is_set()


async def test_a_run_ends_where_one_is_done_and_the_others_are_given_up(tmp_path: Path) -> None:
    ends = [
        plan(f"trainer-{code}", f"exit {code}", role="trainer", may_end=True, restart=NEVER, essential=False)
        for code in (0, 4)
    ]
    trial = Trial(tmp_path, ends, [plan("coordinator", STAY)])
    trial.crew.start()

    await trial.crew.keep()
    await trial.crew.drain()

    assert [unit.state for unit in trial.crew.units] == [State.DONE, State.FAILED, State.STOPPED]


async def test_rows_tell_memory_and_restarts(tmp_path: Path) -> None:
    trial = Trial(tmp_path, [plan("global", STAY)])
    trial.crew.start()
    await trial.said.until("process.ready")

    [row] = trial.crew.rows()
    while row["rss_bytes"] <= 100_000:  # until the kernel has counted what a process of a moment ago holds
        [row] = trial.crew.rows()

    assert (row["name"], row["role"], row["state"], row["restarts"]) == ("global", "global", "ready", 0)
    assert Path(f"/proc/{row['pid']}").is_dir()
    await trial.crew.drain()


async def test_what_a_process_has_started_tells_for_it_that_it_is_ready(tmp_path: Path, short_directory: Path) -> None:
    path, go = short_directory / "n", tmp_path / "go"
    os.mkfifo(go)
    say = (
        "import os, signal, socket\n"
        "channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "channel.sendto(b'STATUS=warming up', os.environ['NOTIFY_SOCKET'])\n"
        f"open({str(go)!r}).read()\n"
        "channel.sendto(b'READY=1\\nSTATUS=well', os.environ['NOTIFY_SOCKET'])\n"
        "signal.pause()\n"
    )
    programs = (shell("global", f'{PYTHON} -I -S -c "$SAY" & wait', SAY=say, NOTIFY_SOCKET=str(path)),)
    trial = Trial(tmp_path, [Plan("global", "global", programs, AT_ONCE, stop_s=0.05)])
    with Notices(path, {READY: trial.crew.on_ready}):
        assert path.stat().st_mode & 0o777 == 0o600
        trial.crew.start()
        waits = await asyncio.to_thread(os.open, go, os.O_WRONLY)  # it has said how it is, and not that it is ready
        assert "ready" not in trial.said.of("global")

        os.close(waits)

        await trial.said.until("process.ready")
        await trial.crew.drain()


@pytest.mark.parametrize("has_trained", [False, True])
async def test_a_trainer_has_worked_once_it_says_that_it_has_trained(
    has_trained: bool, tmp_path: Path, short_directory: Path
) -> None:
    path, said = short_directory / "n", [TRAINED] * has_trained + [READY]
    say = (
        "import os, signal, socket\n"
        "channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        f"channel.sendto({chr(10).join(said)!r}.encode(), os.environ['NOTIFY_SOCKET'])\n"
        "signal.pause()\n"
    )
    programs = (shell("trainer", f'{PYTHON} -I -S -c "$SAY" & wait', SAY=say, NOTIFY_SOCKET=str(path)),)
    trial = Trial(tmp_path, [Plan("trainer", "trainer", programs, AT_ONCE, stop_s=0.05, trains=True)])
    with Notices(path, {READY: trial.crew.on_ready, TRAINED: trial.crew.on_trained}):
        trial.crew.start()
        await trial.said.until("process.ready")

        assert trial.crew.units[0].restarts.has_worked is has_trained
        await trial.crew.drain()


async def test_a_process_is_not_taken_for_one_that_has_ended_and_bore_its_number(tmp_path: Path) -> None:
    waits, done = plan("waits", STAY, tells_ready=True), plan("done", "exit 0", may_end=True)
    trial = Trial(tmp_path, [waits], [done])
    trial.crew.start()
    await trial.said.until("process.done")
    first, last = trial.crew.units
    while not first.processes:
        await asyncio.sleep(0)
    pid = first.processes["waits"].pid
    last.processes["done"].pid = pid  # the kernel hands out a number again

    trial.crew.on_ready(pid)

    assert (first.state, last.state) == (State.READY, State.DONE)
    await trial.crew.drain()


async def test_a_wait_that_fails_keeps_no_tier_from_its_end(tmp_path: Path) -> None:
    said = Said()

    async def refused(role: str) -> None:
        raise SettingError("passwords", "/gone", "a file that can be read")

    tiers = [[plan("regional", STAY)], [plan("global", STAY)]]
    crew = Crew([[Unit(each, tmp_path, {}, said) for each in tier] for tier in tiers], refused, Notes(), 30.0)
    crew.start()
    await said.until("process.ready", times=2)

    with pytest.raises(SettingError, match="passwords is '/gone'"):
        await crew.drain()

    assert [unit.state for unit in crew.units] == [State.STOPPED] * 2 and crew.drained.is_set()
