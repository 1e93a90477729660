"""A long run that is stopped and begun anew goes on where it was; a row that hangs is ended."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from esper.bench.effort import EFFORTS
from esper.bench.figures import Figure
from esper.bench.history.store import Store
from esper.bench.output import document
from esper.bench.output.unfinished import NAME, Unfinished
from esper.bench.results import Results, Sitting
from esper.bench.row import Measurement
from esper.bench.rows.stability import measure
from esper.bench.runner import carried_out, remembered
from esper.bench.timing.overdue import OverdueError, within
from esper.bench.underway import Underway
from esper.bench.work.growth import churn
from esper.cli.main import app
from esper.errors import SettingError
from tests.bench_kit import figure, machine

ROWS = """
from pathlib import Path
from esper.bench.figures import Figure
from esper.bench.row import Measurement
from esper.bench.rows.stability import measure

FOLDER = Path({folder!r})

def counted(name):
    def measure(effort):
        with open(FOLDER / "calls", "a") as file:
            file.write(name)
        if name == "c" and not (FOLDER / "go").exists():
            raise {how}
        yield Figure(name, "ours", "count", 1.0, "bytes", 1)
    return Measurement(name, "own", measure)

ROWS = [counted(name) for name in "abcd"]
"""


def bench(folder: Path, *arguments: object, fails: bool = False) -> Result:
    how = "OSError" if fails else "KeyboardInterrupt"
    (folder / "rows.py").write_text(ROWS.format(folder=str(folder), how=how))
    places = ("--from", folder / "rows.py", "--out", folder / "out", "--store", folder / "store")
    return CliRunner().invoke(app, ["bench", "run", *map(str, (*arguments, *places))])


def test_a_full_run_that_was_stopped_goes_on_with_the_rows_that_it_had_not_done(tmp_path: Path) -> None:
    stopped = bench(tmp_path, "own", "--full")
    (tmp_path / "go").touch()
    done = bench(tmp_path, "own", "--full", "--json")

    assert (stopped.exit_code, done.exit_code) == (130, 0)
    assert "interrupted before 2 rows were done: c, d" in " ".join(stopped.stdout.split())
    assert (tmp_path / "calls").read_text() == "abc" + "cd"
    assert [json.loads(line)["row"] for line in done.stdout.splitlines()] == ["a", "b", "c", "d"]
    whole = document.read(tmp_path / "out" / "report.json").results
    assert [figure.row for figure in whole.figures] == ["a", "b", "c", "d"]
    assert [sitting.rows for sitting in whole.sittings] == [("a", "b"), ("c", "d")]
    assert (whole.left, {*whole.took_s}) == ((), {"a", "b", "c", "d"})


def test_what_is_done_is_begun_anew_once_it_is_whole_or_on_demand(tmp_path: Path) -> None:
    bench(tmp_path, "own", "--full")
    bench(tmp_path, "own", "--full", "--anew")
    (tmp_path / "go").touch()
    bench(tmp_path, "own", "--full")
    bench(tmp_path, "own", "--full")

    assert (tmp_path / "calls").read_text() == "abc" + "abc" + "cd" + "abcd"
    assert not (tmp_path / "out" / NAME).exists()


def test_a_row_that_failed_is_tried_again_and_those_that_are_done_are_kept(tmp_path: Path) -> None:
    failed = bench(tmp_path, "own", "--full", fails=True)
    (tmp_path / "go").touch()
    done = bench(tmp_path, "own", "--full", fails=True)

    assert (failed.exit_code, done.exit_code) == (1, 0)
    assert f"what is done stays in {tmp_path / 'out' / NAME}: the same command measures the rest" in failed.stderr
    assert (tmp_path / "calls").read_text() == "abcd" + "c"
    assert not (tmp_path / "out" / NAME).exists()


def test_each_sitting_is_remembered_once_at_its_own_commit(tmp_path: Path) -> None:
    def kept(row: str, commit: str, ended_s: float) -> Results:
        sitting = Sitting((row,), commit, False, 0.1, 0.2, ended_s - 1.0, ended_s)
        return Results((figure(2.0, row),), (), (), machine(), EFFORTS["full"], 0.0, ended_s, {row: 1.0}, (sitting,))

    store, rows = Store(tmp_path), [kept("a", "old", 1.0), kept("b", "new", 2.0)]
    for num in (1, 2):
        remembered(Underway(EFFORTS["full"], kept=rows[:num]).results(), store)

    [old, new] = store.sessions(machine().key)
    assert [(each.commit, {*each.took_s}, [entry.row for entry in each.entries]) for each in (old, new)] == [
        ("old", {"a"}, ["a"]),
        ("new", {"b"}, ["b"]),
    ]


def test_a_sitting_that_was_remembered_is_not_the_baseline_of_its_own_figures(tmp_path: Path) -> None:
    def sat(value: float, at_s: float) -> Results:
        sitting = Sitting(("a",), "c", False, 0.1, 0.2, at_s, at_s + 1.0)
        return Results((figure(value, "a"),), (), (), machine(), EFFORTS["full"], at_s, at_s, {"a": 1.0}, (sitting,))

    store = Store(tmp_path)
    for at in range(8):
        remembered(sat(1.0 + 0.001 * (at % 3), float(at)), store)

    [first, again] = [remembered(sat(2.0, 100.0), store).alarms for _ in range(2)]
    [alarm] = remembered(sat(2.0, 200.0), store).alarms

    assert (first, again) == ((), ()) and alarm.row == "a"
    assert len(store.sessions(machine().key)) == 10


def test_a_quick_run_is_short_and_never_goes_on_with_figures_of_before(tmp_path: Path) -> None:
    bench(tmp_path, "own")
    bench(tmp_path, "own")

    assert (tmp_path / "calls").read_text() == "abc" * 2


@pytest.mark.parametrize("other", [("a", "--full"), ("own", "--full", "--seed", "7")], ids=["rows", "seed"])
def test_what_another_run_has_left_is_not_mixed_with_this_one(other: tuple[str, ...], tmp_path: Path) -> None:
    bench(tmp_path, "own", "--full")

    refused = bench(tmp_path, *other)

    assert refused.exit_code == 2 and "--anew forgets it" in refused.stderr
    assert (tmp_path / "calls").read_text() == "abc"


def test_figures_of_another_machine_are_not_kept(tmp_path: Path) -> None:
    effort, unfinished = EFFORTS["full"], Unfinished(tmp_path, {})
    unfinished.add(Results((), (), (), machine(), effort, 0.0, 1.0, {"a/b": 1.0}))

    [kept] = unfinished.done(["a/b"], effort, machine())
    with pytest.raises(SettingError, match="another machine"):
        unfinished.done(["a/b"], effort, replace(machine(), cores=3))

    assert kept.took_s == {"a/b": 1.0}


def test_rows_of_one_sitting_are_told_apart_by_the_commit_that_each_was_measured_at() -> None:
    def kept(row: str, commit: str, ended_s: float) -> Results:
        sitting = Sitting((row,), commit, False, 0.1, 0.2, 0.0, ended_s)
        return Results((), (), (), machine(), EFFORTS["full"], 0.0, ended_s, {row: 1.0}, (sitting,))

    rows = [kept("a", "old", 1.0), kept("b", "old", 2.0), kept("c", "new", 3.0)]
    sittings = Underway(EFFORTS["full"], kept=rows).results().sittings

    assert [(each.rows, each.commit) for each in sittings] == [(("a", "b"), "old"), (("c",), "new")]
    assert [(each.started_s, each.ended_s) for each in sittings] == [(0.0, 2.0), (2.0, 3.0)]


def test_threads_of_torch_are_told_where_only_an_earlier_sitting_has_loaded_it() -> None:
    effort, before = EFFORTS["full"], replace(machine(), threads=1_000)
    kept = Results((), (), (), before, effort, 0.0, 1.0, {"a": 1.0}, (Sitting(("a",), "c", False, 0.1, 0.2, 0.0, 1.0),))

    assert Underway(effort, kept=[kept]).results().machine.threads == 1_000


def test_a_row_that_hangs_fails_and_those_behind_it_are_measured() -> None:
    def hang(effort: object) -> list[Figure]:
        while True:
            pass

    def sound(effort: object) -> list[Figure]:
        return [Figure("b", "ours", "count", 1.0, "bytes", 1)]

    underway = Underway(EFFORTS["quick"], limit_s=0.05)

    found = carried_out([Measurement("a", "own", hang), Measurement("b", "own", sound)], underway)

    assert [str(failure) for failure in found.failures] == ["a: it was not done within 0.05 s, and was ended"]
    assert [figure.row for figure in found.figures] == ["b"]
    assert {*found.took_s} == {"b"}


def test_an_alarm_that_was_set_before_a_row_is_set_after_it() -> None:
    before = signal.setitimer(signal.ITIMER_REAL, 50.0)
    try:
        within("a", 500.0, list)

        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 50.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_a_soak_that_is_ended_is_not_taken_for_one_that_is_done() -> None:
    assert churn  # loaded before the alarm

    with pytest.raises(OverdueError):
        within("stability", 0.3, lambda: list(measure(EFFORTS["full"])))
