"""`esper up`, `ps`, `restart` and `down`: what they print, and what they refuse in one line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from esper.bus import runs
from esper.cli import operate
from esper.cli.main import app
from esper.cli.running.keeping import answer
from esper.cli.up import last_word, namesakes, sentence
from esper.runtime.crew import control
from esper.runtime.crew.crew import Crew, Notes
from esper.runtime.crew.runfile import Restart
from esper.runtime.crew.unit import Unit
from tests.crew_kit import STAY, Said, one_port, plan, unit
from tests.deploy_kit import ROOT


def invoked(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


async def said(*words: str) -> Result:
    """A command in a thread of its own, so that the run in this one can answer."""
    return await asyncio.to_thread(invoked, *words)


@pytest.fixture
async def kept(short_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crew]:
    """A run called demo of two regional aggregators and a tier above them, all of which do nothing."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    monkeypatch.delenv("ESPER_RUN", raising=False)
    notes = Notes()

    async def settled(role: str) -> None:
        notes("tier.unsettled", tier=role, why="3 entries wait after 5 s")

    plans = [[plan(f"regional-r{number}", STAY, role="regional") for number in range(2)], [plan("global", STAY)]]
    crew = Crew([[Unit(each, tmp_path, {}, notes) for each in tier] for tier in plans], settled, notes, 30.0)
    with runs.register("demo", started_ns=1) as record:
        async with control.answering(record.directory / control.NAME, lambda asked: answer(crew, asked)):
            crew.start()
            while not all(unit.ready.is_set() for unit in crew.units):
                await asyncio.sleep(0)
            yield crew
            await crew.drain()


def test_the_example_is_the_file_in_the_folder_of_examples() -> None:
    assert invoked("up", "--example").output == (ROOT / "examples" / "run.toml").read_text()


def test_a_bad_file_is_one_line_and_status_2(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('name = "x"\ntrainer.count = -1\n')

    result = invoked("up", "-f", str(tmp_path / "run.toml"))

    assert result.exit_code == 2
    assert result.stderr.startswith(f"esper: {tmp_path}/run.toml: trainer.count is -1; expected greater than")
    assert result.stderr.count("\n") == 1


def test_a_folder_that_can_not_be_made_is_one_line_and_status_2(
    tmp_path: Path, short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    (tmp_path / "file").touch()

    result = invoked("up", "--runs-dir", str(tmp_path / "file"))

    assert result.exit_code == 2
    assert result.stderr.startswith(f"esper: runs_dir is '{tmp_path}/file'; expected a folder where")
    assert result.stderr.count("\n") == 1


async def test_ps_lists_what_each_process_is_at(kept: Crew) -> None:
    table, lines = await said("ps", "demo"), await said("ps", "demo", "--json")

    head, *rows = table.output.splitlines()
    assert head.split() == ["NAME", "ROLE", "STATE", "PID", "RESTARTS", "RSS", "LAST", "END"]
    assert [row.split()[:3] for row in rows] == [
        ["regional-r0", "regional", "ready"],
        ["regional-r1", "regional", "ready"],
        ["global", "global", "ready"],
    ]
    assert [json.loads(line)["restarts"] for line in lines.output.splitlines()] == [0, 0, 0]


async def test_the_one_run_that_is_kept_going_needs_no_name(kept: Crew) -> None:
    assert len((await said("ps")).output.splitlines()) == 4


async def test_restart_says_how_it_goes_and_refuses_a_role_that_is_not_there(kept: Crew) -> None:
    before = [row["pid"] for row in kept.rows()]

    done, refused = await said("restart", "global", "demo"), await said("restart", "king", "demo")

    assert done.stdout.splitlines() == [f"global is {state}" for state in ("stopping", "started", "ready")]
    assert [row["pid"] for row in kept.rows()][:2] == before[:2] and kept.rows()[2]["pid"] != before[2]
    assert refused.exit_code == 2
    assert "role is 'king'; expected one of global, regional" in refused.stderr


async def test_down_ends_the_run_in_order_and_says_what_was_not(kept: Crew) -> None:
    async def keep() -> None:
        await kept.keep()
        await kept.drain()
        runs.resolve("demo").directory.joinpath(runs.LOCK).unlink()  # as whoever keeps a run does once all has ended

    keeping = asyncio.create_task(keep())
    result = await said("down", "demo")
    await keeping

    assert result.exit_code == 0
    told = result.stdout.splitlines()
    unsettled = "what was on its way to the {} tier has not come through: 3 entries wait after 5 s"
    assert (told[0], told[-3]) == (unsettled.format("regional"), unsettled.format("global"))
    assert told[-2:] == ["global is stopping", "global is stopped"]


async def test_down_says_that_a_run_goes_on_for_longer_than_it_waits(
    kept: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operate, "GONE_S", 0.0)
    keeping = asyncio.create_task(kept.keep())
    asked = asyncio.create_task(said("down", "demo"))
    await keeping
    await kept.drain()

    result = await asked

    assert result.exit_code == 1
    assert "still keeps its log after 0 s" in result.stderr


def test_a_run_that_nobody_keeps_going_is_refused(short_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    monkeypatch.delenv("ESPER_RUN", raising=False)
    with runs.register("lone", started_ns=1):
        named, unnamed = invoked("ps", "lone"), invoked("down")
        monkeypatch.setenv("ESPER_RUN", "another")
        elsewhere = invoked("ps")

    assert (named.exit_code, unnamed.exit_code, elsewhere.exit_code) == (2, 2, 2)
    assert "nobody answers at" in named.stderr
    assert "expected one of those that are kept going here (none" in unnamed.stderr
    assert "another" in elsewhere.stderr


@pytest.mark.parametrize("name", ["", "full"])
def test_of_a_run_that_waits_for_room_for_its_log_that_is_said(
    name: str, short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    monkeypatch.setenv("ESPER_RUN", name)
    monkeypatch.setattr(operate, "GONE_S", 0.0)
    with runs.register("full", started_ns=1) as record:
        (record.directory / runs.PARTING).touch()
        listed, restarted, ended = invoked("ps"), invoked("restart", "global"), invoked("down")

    told = f"esper: {record.run_id} has ended its processes, and ends once its log is kept: {operate.LATE}\n"
    assert [(each.exit_code, each.stderr) for each in (listed, restarted)] == [(2, told)] * 2
    assert (ended.exit_code, ended.stderr) == (
        1,
        f"esper: {record.run_id} still keeps its log after 0 s, and ends by itself then: {operate.LATE}\n",
    )


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_where_no_run_is_kept_going_none_is_listed(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    monkeypatch.delenv("ESPER_RUN", raising=False)

    listed = invoked("ps", *options)

    assert (listed.exit_code, listed.stdout) == (0, "")
    assert listed.stderr == "no run is kept going here: `esper up -f run.toml` starts one\n"


def test_a_second_run_of_a_name_knows_whom_the_name_meant(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    with (
        runs.register("twice", started_ns=1) as first,
        runs.register("other", started_ns=2) as other,
        runs.register("twice", started_ns=3) as second,
    ):
        assert (namesakes(second), namesakes(other)) == ([first.run_id], [])
        assert runs.resolve("twice") == second


def last_words(said: Said, logs: Path) -> list[str]:
    ends = ("process.died", "process.given_up")
    return [last_word({"event": event, **facts}, logs) for event, facts in said.events if event in ends]


async def test_of_a_group_the_rank_that_died_first_is_quoted(tmp_path: Path) -> None:
    said = Said()

    await unit(tmp_path, said, "group", STAY, "echo why; echo; exit 3").tend()

    assert last_words(said, tmp_path) == ["; it said: why"] * 3


async def test_a_last_word_of_any_length_leaves_the_terminal_readable(tmp_path: Path) -> None:
    said = Said()

    await unit(tmp_path, said, "trainer", "printf %05000d 7; exit 3").tend()

    assert last_words(said, tmp_path) == [f"; it said: {'0' * 400}…"] * 3


async def test_what_was_never_ready_is_given_up_with_the_number_of_its_starts(tmp_path: Path) -> None:
    said = Said()

    await unit(tmp_path, said, "trainer", "exit 3", tells_ready=True).tend()

    [given_up] = [{"event": event, **facts} for event, facts in said.events if event == "process.given_up"]
    told = "trainer ended with exit code 3, and was not ready in any of 3 starts: it is given up"
    assert sentence(given_up) == told


async def test_what_never_trained_a_step_is_given_up_with_the_number_of_its_starts(tmp_path: Path) -> None:
    said = Said()

    await unit(tmp_path, said, "trainer", "exit 3", trains=True).tend()

    [given_up] = [{"event": event, **facts} for event, facts in said.events if event == "process.given_up"]
    told = "trainer ended with exit code 3, and trained no step in any of 3 starts: it is given up"
    assert sentence(given_up) == told


async def test_what_ends_by_itself_says_so_where_it_was_never_ready(tmp_path: Path) -> None:
    said = Said()

    await unit(tmp_path, said, "trainer", "exit 0", tells_ready=True, may_end=True).tend()
    await unit(tmp_path, said, "script", "exit 0", may_end=True).tend()

    assert [sentence({"event": event, **facts}) for event, facts in said.events if event == "process.done"] == [
        "trainer has ended by itself without having been ready, as a trainer is once attach() has joined it",
        "script is done",
    ]


async def test_starts_that_somebody_asked_for_are_among_those_in_which_it_was_not_ready(tmp_path: Path) -> None:
    said = Said()
    never = unit(tmp_path, said, "trainer", "exit 3", tells_ready=True)

    await never.tend()
    never.begin()
    await never.tend()

    given_up = [{"event": event, **facts} for event, facts in said.events if event == "process.given_up"]
    assert [sentence(each).partition("any of ")[2] for each in given_up] == [
        "3 starts: it is given up",
        "6 starts: it is given up",
    ]


async def test_what_is_started_only_once_is_given_up_without_a_number(tmp_path: Path) -> None:
    said = Said()

    await unit(tmp_path, said, "trainer", "exit 3", trains=True, restart=Restart(limit=0)).tend()

    [given_up] = [{"event": event, **facts} for event, facts in said.events if event == "process.given_up"]
    assert sentence(given_up) == "trainer ended with exit code 3, and is not to be started again: it is given up"


async def test_what_somebody_started_once_more_is_not_said_to_have_ended_too_often(tmp_path: Path) -> None:
    said = Said()
    server = unit(tmp_path, said, "server", "exit 3", restart=Restart(limit=0))

    await server.tend()
    server.begin()
    await server.tend()

    given_up = [{"event": event, **facts} for event, facts in said.events if event == "process.given_up"]
    told = "server ended with exit code 3, and is not to be started again: it is given up"
    assert [sentence(each) for each in given_up] == [told, told]


async def test_what_could_not_be_started_has_said_nothing(tmp_path: Path) -> None:
    said = Said()

    await unit(tmp_path, said, "loop", "echo why; exit 3", fresh=one_port()).tend()

    assert last_words(said, tmp_path) == ["; it said: why", "", ""]
