"""What a soak recorded is kept line by line, added up over its sessions, and judged by the seeds' bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.bench.soak.soaked import Sample, Soaked, append, read
from esper.bench.soak.stability import soak
from esper.cli.main import app
from esper.errors import SettingError

ONE = Sample(session=1, hours=0.5, rss_mb=400.0, step_ms=2.0, steps=900, lives=20, refused=3, errors=0, collections=7)


def later(num: int) -> list[Sample]:
    return [replace(ONE, hours=0.1 * at, steps=100 * at, rss_mb=400 + 0.01 * at) for at in range(1, num + 1)]


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    for sample in later(3):
        append(tmp_path / "soak.jsonl", sample)

    assert read(tmp_path / "soak.jsonl") == later(3)


def test_a_line_that_was_cut_off_is_left_out_and_spoils_none_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    append(path, ONE)
    path.write_bytes(path.read_bytes() + b'{"session": 1, "hou')

    assert read(path) == [ONE]
    append(path, ONE)
    assert read(path) == [ONE, ONE]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    path.write_text('{"bench": "wire"}\n{"bench": "wire"}\n')

    with pytest.raises(SettingError, match="line 1 of"):
        soak(1.0, out=path)


@pytest.mark.parametrize("hours", [0.0, -1.0, float("nan"), float("inf")])
def test_hours_must_be_a_positive_number(hours: float) -> None:
    with pytest.raises(SettingError, match="above 0"):
        soak(hours)


def test_a_soak_that_is_over_is_reported_again_without_training(tmp_path: Path) -> None:
    for sample in later(10):
        append(tmp_path / "soak.jsonl", sample)

    found = soak(0.9, out=tmp_path / "soak.jsonl")

    assert found.samples == tuple(later(10)) and not found.interrupted


def test_counts_add_up_over_sessions_and_errors_are_a_share_of_all_steps() -> None:
    second = replace(ONE, session=2, hours=1.0, steps=100, errors=2)

    figures = {(figure.arm, figure.stat): figure for figure in Soaked((ONE, second), 48.0, True).figures()}

    assert figures["soak", "steps"].value == 1_000
    assert figures["soak", "error rate"].value == 0.002 and figures["soak", "error rate"].met is False
    assert figures["soak", "RSS, slope"].label.startswith("not measured")


def test_drift_is_held_against_the_seeds_bounds() -> None:
    leaking = [replace(each, rss_mb=400 * (1 + each.hours)) for each in later(40)]

    kept, leaked = ({f.stat: f for f in Soaked(tuple(s), 4.0, False).figures()} for s in (later(40), leaking))

    assert kept["RSS, end to start"].met is True and leaked["RSS, end to start"].met is False
    assert leaked["RSS, slope"].value == pytest.approx(400.0)


def test_a_soak_writes_its_report_as_a_page_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for sample in later(10):
        append(tmp_path / "soak.jsonl", sample)
    arguments = ["--hours", "0.9", "--samples", str(tmp_path / "soak.jsonl"), "--out", str(tmp_path / "out")]

    result = CliRunner().invoke(app, ["bench", "soak", *arguments])

    assert result.exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.json", "report.html"}
