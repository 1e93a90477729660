"""How long a row will take is told by earlier runs here, or by the pace of a quick one."""

from __future__ import annotations

from pathlib import Path

import pytest

from esper.bench.effort import Mode
from esper.bench.history.lengths import Length, length
from esper.bench.history.store import Session, Store
from esper.bench.row import Comparison, Measurement
from esper.cli.bench.list import lasting


def ran(mode: Mode, **took_s: float) -> Session:
    return Session(0.0, "", False, mode, 0.5, (), took_s)


SUM = Comparison("sum", "own", ())
COUNT = Measurement("count", "own", lambda effort: [], times=50.0)


def test_what_a_row_took_is_that_of_the_last_run_of_the_mode() -> None:
    sessions = [ran("quick", sum=4.0), ran("quick", sum=5.0), ran("full", sum=90.0), ran("quick")]

    assert length(SUM, "quick", sessions) == Length(5.0)
    assert length(SUM, "full", sessions) == Length(90.0)


@pytest.mark.parametrize(
    ("row", "quick_s", "full_s"),
    [
        (SUM, 6.0, 1.25 * 60 + 6.0),  # warm-up and rounds go by an effort's seconds
        (SUM, 30.0, 30.0 * 200 / 30),  # thirty pairs took as long: of two hundred there are no fewer
        (COUNT, 7.0, 350.0),
    ],
)
def test_of_a_row_without_a_full_run_it_is_derived_from_a_quick_one(
    row: Comparison | Measurement, quick_s: float, full_s: float
) -> None:
    assert length(row, "full", [ran("quick", **{row.name: quick_s})]) == Length(full_s, is_derived=True)


def test_nothing_is_told_of_what_never_ran_or_was_left_out_of_the_quick_run() -> None:
    heavy = Comparison("sum", "own", (), is_heavy=True)

    assert length(SUM, "full", [ran("quick", other=1.0)]) is None
    assert length(heavy, "full", [ran("quick", sum=0.1)]) is None


def test_the_store_keeps_it_and_reads_lines_of_before(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add("key", ran("quick", sum=4.0))
    line = (tmp_path / "key.jsonl").read_text()
    (tmp_path / "key.jsonl").write_text(line.replace(', "took_s": {"sum": 4.0}', "") + line)

    assert [session.took_s for session in store.sessions("key")] == [{}, {"sum": 4.0}]


@pytest.mark.parametrize(("seconds", "text"), [(8.4, "8 s"), (89.0, "89 s"), (720.0, "12 min"), (8640.0, "2.4 h")])
def test_a_time_is_told_in_two_digits(seconds: float, text: str) -> None:
    assert lasting(seconds) == text
