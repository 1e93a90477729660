"""A run whose work ends with the first process that dies, and in which scripts are played once they are begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from esper.bus.embedded import EmbeddedRedis
from esper.bus.runs import RunRecord
from esper.cli.running.demo_run import DemoRun, ToldToEndError, once
from esper.cli.running.fleet import Fleet, example_file
from esper.cli.running.keeping import KeptRedis, drained_at_end
from esper.cli.running.plan import LocalRun
from esper.runtime.crew.crash_report import ProcessDiedError
from esper.runtime.crew.crew import Crew, Notes
from esper.runtime.crew.runfile import Restart
from esper.runtime.crew.spawn import NotStartedError
from esper.runtime.crew.unit import Plan, State, Unit
from tests.bus_kit import own_server
from tests.crew_kit import STAY, plan

Made = Callable[..., DemoRun]


async def at_once(role: str) -> None:
    """Nothing is on its way to anybody."""


async def never() -> None:
    await asyncio.Event().wait()


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Made]:
    """Makes a run of shells; scripts are those whose role is controller."""
    crews: list[Crew] = []

    def make(*plans: Plan, redis: EmbeddedRedis | None = None) -> DemoRun:
        server = None if redis is None else KeptRedis(redis, Restart(limit=0), Notes(), tmp_path / "logs")
        crews.append(Crew([[Unit(each, tmp_path, {}, Notes()) for each in plans]], at_once, Notes(), 30.0, server))
        record = RunRecord("run", "run", "unix:///nowhere", tmp_path)
        scripts = tuple(each.name for each in plans if each.role == "controller")
        return DemoRun(Fleet(example_file(), LocalRun(record, tmp_path), redis), crews[-1], scripts)

    yield make
    for crew in crews:
        await crew.drain()


def script(name: str, words: str) -> Plan:
    return once(plan(name, words, role="controller", may_end=True))


async def test_the_death_of_a_process_ends_the_work_with_its_last_words(made: Made) -> None:
    run = made(once(plan("good", STAY)), once(plan("bad", "echo 'port 80 is taken'; exit 1", essential=False)))
    run.start()

    with pytest.raises(ProcessDiedError, match=r"(?s)bad ended with exit code 1.*port 80 is taken"):
        await run.guard(never())


async def test_an_error_of_the_work_itself_comes_through(made: Made) -> None:
    async def fail() -> None:
        raise KeyError("mine")

    run = made(once(plan("good", STAY)))
    run.start()

    with pytest.raises(KeyError, match="mine"):
        await run.guard(fail())


@pytest.fixture
def wrong(tmp_path: Path) -> Crew:
    """Its process can't be started, which is told to whoever waits for its end."""
    (tmp_path / "bad.log").mkdir()
    return Crew([[Unit(once(plan("bad", STAY)), tmp_path, {}, Notes())]], at_once, Notes(), 30.0)


async def test_what_goes_wrong_at_the_end_does_not_hide_why_the_work_has_failed(wrong: Crew) -> None:
    wrong.start()

    with pytest.raises(KeyError, match="mine"):
        async with drained_at_end(wrong):
            raise KeyError("mine")

    assert wrong.drained.is_set()


async def test_what_goes_wrong_at_the_end_alone_is_told(wrong: Crew) -> None:
    wrong.start()

    with pytest.raises(NotStartedError, match="bad can't be started"):
        async with drained_at_end(wrong):
            pass


async def test_scripts_wait_until_they_are_begun_and_then_have_their_say(made: Made, tmp_path: Path) -> None:
    run = made(once(plan("server", STAY)), script("first", "echo one"), script("second", "echo two; exit 3"))
    run.start()

    run.crew.begin("first")
    await run.guard(run.crew.done("first"))
    states = [unit.state for unit in run.crew.units]
    run.crew.begin("second")
    with pytest.raises(ProcessDiedError, match=r"(?s)second ended with exit code 3.*two"):
        await run.guard(run.crew.done("second"))

    assert states[1:] == [State.DONE, State.STOPPED]
    assert (tmp_path / "first.log").read_text() == "one\n"


async def test_a_script_that_ends_beside_other_work_is_done_whenever_that_is_asked(made: Made) -> None:
    run = made(once(plan("server", STAY)), script("first", "true"), script("second", "exit 3"))
    run.start()
    run.crew.begin("first")

    async def work() -> None:
        while run.crew.units[1].state is not State.DONE:
            await asyncio.sleep(0)
        await run.crew.done("first")
        run.crew.begin("second")
        await never()

    with pytest.raises(ProcessDiedError, match="second ended with exit code 3"):
        await run.guard(work())


async def test_a_server_that_dies_after_the_training_ends_the_work_too(made: Made, tmp_path: Path) -> None:
    stop, die = tmp_path / "stop", tmp_path / "die"
    waits = "while [ ! -e {} ]; do sleep 0.01; done; exit {}"
    trainer = plan("trainer", waits.format(stop, 0), role="trainer", may_end=True, stop_file=stop)
    run = made(once(trainer), once(plan("global", waits.format(die, 4))))
    run.start()

    async def work() -> None:
        run.ask_trainers_to_end()
        while run.crew.units[0].state is not State.DONE:
            await asyncio.sleep(0)
        die.touch()
        await never()

    with pytest.raises(ProcessDiedError, match="global ended with exit code 4"):
        await run.guard(work())


async def test_who_has_it_end_before_its_work_is_done_is_told_of(made: Made) -> None:
    run = made(once(plan("server", STAY)))
    run.start()

    async def work() -> None:
        run.crew.stopping.set()
        await never()

    with pytest.raises(ToldToEndError):
        await run.guard(work())


async def test_a_redis_that_has_died_is_what_went_wrong_whoever_met_it_first(
    made: Made, short_directory: Path, tmp_path: Path
) -> None:
    with own_server(short_directory) as server:
        run = made(once(plan("server", STAY)), redis=server)
        run.start()

        async def work() -> Any:
            assert server.process is not None
            server.process.kill()
            server.process.wait()
            raise ToldToEndError

        with pytest.raises(ProcessDiedError, match=r"redis ended with signal SIGKILL; the end of .*/logs/redis\.log"):
            await run.guard(work())

    assert "ready to accept connections" in (tmp_path / "logs" / "redis.log").read_text()
