"""`esper export`: one command for each place that telemetry goes to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli_kit import called
from tests.export_kit import aggregate, say
from tests.scripted import ScriptedRun


async def esper(*arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    return await called("export", *arguments)


async def test_once_ends_when_all_is_carried_over(run: ScriptedRun, tmp_path: Path) -> None:
    await say(run, aggregate(1, loss=[1.0]), aggregate(2, loss=[1.0]))

    lines = await esper("jsonl", run.name, str(tmp_path / "run.jsonl"), "--once")
    events = await esper("tensorboard", run.name, str(tmp_path), "--once")

    assert lines == events == (0, "", "2 aggregates written\n")
    assert [json.loads(line)["sequence"] for line in (tmp_path / "run.jsonl").read_text().splitlines()] == [1, 2]
    assert len(list((tmp_path / run.run_id).glob("events.out.tfevents.*"))) == 1


async def test_a_place_that_can_not_be_written_to_is_one_line(run: ScriptedRun, tmp_path: Path) -> None:
    await say(run, aggregate(1, loss=[1.0]))
    (tmp_path / "folder").mkdir()

    status, out, err = await esper("jsonl", run.name, str(tmp_path / "folder"), "--once")

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "folder'; expected a place that can be written to (Is a directory)" in err


ELSEWHERE = "--host, --port is '203.0.113.7:0'; expected an address that is free"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["jsonl", "RUN", "/proc/none/x", "--once"], "path is '/proc/none/x'; expected a place that can be written to"),
        (["tensorboard", "RUN", "/dev/null", "--once"], "expected a place that can be written to"),
        (["jsonl", "nobody", "x", "--once"], "nobody"),
        (["jsonl", "RUN", "x", "--keep", "0"], "--keep"),
        (["prometheus", "RUN", "--buckets", "3,2,1"], "buckets is '3,2,1'; expected 1 to 100 finite numbers"),
        (["prometheus", "RUN", "--port", "70000"], "--port"),
        (["prometheus", "--run", "RUN", "--host", "203.0.113.7", "--port", "0"], ELSEWHERE),
        (["prometheus", "RUN", "--host", "203.0.113.7", "--port", "0"], ELSEWHERE),
        (["graphite", "RUN"], "graphite"),
    ],
)
async def test_bad_input_is_one_line(run: ScriptedRun, arguments: list[str], expected: str) -> None:
    status, out, err = await esper(*(run.name if each == "RUN" else each for each in arguments))

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert expected in err
