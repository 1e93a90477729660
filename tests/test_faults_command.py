"""`python bench/faults.py`: its report goes on where it was, and whatever fails says how to do it again."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.faults.processes import TooLateError
from tests.faults.row import Amounts, Result, Row
from tests.faults.serving import Serve
from tests.faults.several import KINDS
from tests.system import test_faults as short_tier

FILE = Path(__file__).resolve().parent.parent / "bench" / "faults.py"
Command: TypeAlias = Callable[..., int]


class Trial:
    """A row of three parts; the second of seed 1 breaks a promise."""

    def __init__(self) -> None:
        self.seeds: list[int] = []
        self.failure: Exception | None = None
        self.served: list[Serve | None] = []
        self.row = Row("trial", self.run, ci={"messages": 2}, chunk={"messages": 5}, num_chunks=3, anywhere=True)

    def run(self, directory: Path, amounts: Amounts, seed: int, serve: Serve | None = None) -> Result:
        self.seeds.append(seed)
        self.served.append(serve)
        (directory / "history").write_text("what happened")
        if self.failure is not None:
            raise self.failure
        return Result(
            violations=["7 was lost"] if seed == 1_001 else [],
            counts={"messages": amounts["messages"]},
            samples={"latency_ms": [1.0, 2.0]},
        )


@pytest.fixture
def trial() -> Trial:
    return Trial()


@pytest.fixture
def faults(trial: Trial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """The command, with this one row, and its histories in a place of the test."""
    found: dict[str, Any] = runpy.run_path(str(FILE))
    main = found["main"]
    main.__globals__.update(table=lambda: [trial.row])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def command(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["faults.py", *words])
        status: int = main()
        return status

    return command


def test_a_report_holds_each_part_once_and_is_gone_on_with(faults: Command, trial: Trial, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    full = ("--tier", "full", "--seed", "2", "--report", str(report))

    assert faults(*full, "--chunk", "1") == 0
    assert faults(*full, "--chunk", "1") == 0
    assert faults(*full) == 0

    [row] = json.loads(report.read_text())["rows"]
    assert trial.seeds == [2_001, 2_000, 2_002] and sorted(row["chunks"]) == [0, 1, 2]
    assert row["result"]["counts"] == {"messages": 15} and row["figures"]["latency_ms"]["n"] == 6
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]  # no history of what held its promise


def test_a_broken_promise_is_a_status_and_a_command_that_does_it_again(
    faults: Command, trial: Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert faults("--tier", "full", "--report", str(tmp_path / "report.json")) == 1

    said = capsys.readouterr().err
    words = again_with(said)
    assert "trial: 7 was lost" in said
    assert faults(*words) == 1 and trial.seeds == [1_000, 1_001, 1_002, 1_001]


def test_a_row_is_done_on_another_redis_and_said_to_be_where_it_fails(
    faults: Command, trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    assert faults("--tier", "full", "--server", "cluster") == 1
    words = again_with(capsys.readouterr().err)
    assert faults(*words) == 1 and faults("--server", "sentinel") == 0

    assert trial.served == [*[KINDS["cluster"]] * 4, KINDS["sentinel"]] and trial.seeds[3] == 1_001


def test_a_row_that_harms_one_server_is_done_on_no_other(faults: Command, trial: Trial) -> None:
    trial.row = replace(trial.row, anywhere=False)

    with pytest.raises(SystemExit, match="row is 'trial'; expected one of"):
        faults("--row", "trial", "--server", "cluster")
    assert not trial.seeds and faults("--row", "trial") == 0


def again_with(said: str) -> list[str]:
    """What comes behind the command's name in the one line that says how to do it again."""
    [again] = [line.partition("again with: ")[2] for line in said.splitlines() if "again with" in line]
    words = again.partition("  (histories")[0].split()
    assert words[:2] == ["python", "bench/faults.py"]
    return words[2:]


@pytest.mark.parametrize(
    ("failure", "where"),
    [(AssertionError("no read was cut off"), "violations"), (TooLateError("not within 60 s: it goes on"), "late")],
)
def test_a_fault_that_took_no_effect_is_a_broken_promise_and_the_other_parts_are_done(
    faults: Command,
    trial: Trial,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    failure: AssertionError,
    where: str,
) -> None:
    report, trial.failure = tmp_path / "report.json", failure

    assert faults("--tier", "full", "--seed", "2", "--report", str(report)) == 1

    [row] = json.loads(report.read_text())["rows"]
    said = capsys.readouterr().err
    assert row["result"][where] == [str(failure)] * 3 and len(row["replay"]) == said.count("again with: ") == 3
    assert f"trial: {failure}" in said


def test_what_ends_the_command_itself_says_how_to_do_it_again(
    faults: Command, trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    trial.failure = ConnectionError("the server is gone")

    with pytest.raises(ConnectionError):
        faults("--tier", "full", "--seed", "2", "--chunk", "1", "--set", "messages=3")
    words = again_with(capsys.readouterr().err)
    trial.failure = None

    assert faults(*words) == 0 and trial.seeds == [2_001, 2_001]


def test_what_fails_in_the_short_tier_says_how_to_do_it_again(
    faults: Command, trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    trial.failure = AssertionError("no read was cut off")

    with pytest.raises(AssertionError, match="no read was cut off") as failed:
        short_tier.test_no_promise_is_broken(trial.row)

    said = str(failed.value).partition("\nassert")[0]  # behind that pytest shows the list once more
    assert faults(*again_with(said)) == 1 and trial.seeds == [1_000, 1_000]


def test_a_report_of_another_seed_is_not_added_to(faults: Command, tmp_path: Path) -> None:
    report = str(tmp_path / "report.json")
    faults("--report", report, "--seed", "2")

    with pytest.raises(SystemExit, match="server single; expected tier ci, seed 2 and server cluster"):
        faults("--report", report, "--seed", "2", "--server", "cluster")
    with pytest.raises(SystemExit, match="is of tier ci, seed 2 and server single; expected tier ci, seed 3"):
        faults("--report", report, "--seed", "3")
