"""`python bench/faults.py`: its report goes on where it was, and what breaks a promise says how to do it again."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.faults.row import Amounts, Result, Row

FILE = Path(__file__).resolve().parent.parent / "bench" / "faults.py"
Command: TypeAlias = Callable[..., int]


class Trial:
    """A row of three parts; the second of seed 1 breaks a promise."""

    def __init__(self) -> None:
        self.seeds: list[int] = []
        self.row = Row("trial", self.run, ci={"messages": 2}, chunk={"messages": 5}, num_chunks=3)

    def run(self, directory: Path, amounts: Amounts, seed: int) -> Result:
        self.seeds.append(seed)
        (directory / "history").write_text("what happened")
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
    [again] = [line.partition("again with: ")[2] for line in said.splitlines() if "again with" in line]
    words = again.partition("  (histories")[0].split()
    assert "trial: 7 was lost" in said and words[:2] == ["python", "bench/faults.py"]
    assert faults(*words[2:]) == 1 and trial.seeds == [1_000, 1_001, 1_002, 1_001]


def test_a_report_of_another_seed_is_not_added_to(faults: Command, tmp_path: Path) -> None:
    report = str(tmp_path / "report.json")
    faults("--report", report, "--seed", "2")

    with pytest.raises(SystemExit, match="is of tier ci and seed 2; expected ci and 3"):
        faults("--report", report, "--seed", "3")
