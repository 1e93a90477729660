"""When a run counts as slower than the ones before it: on costs of runs that a seeded generator makes up."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esper.bench.effort import EFFORTS
from esper.bench.figures import Figure, Ratio
from esper.bench.history.regressions import judged
from esper.bench.history.store import Session, Store
from esper.bench.results import Alarm
from esper.bench.runner import run
from esper.errors import SettingError
from tests.bench_kit import BRIEF, arm, figure, machine, nothing, results, row

BETWEEN = 0.015
"""Standard deviation of the logarithm of a median, from one run to the next."""


def told(runs: Iterable[Sequence[Figure]]) -> list[tuple[tuple[Alarm, ...], Session]]:
    """Run after run, each judged by those before it."""
    sessions, found = list[Session](), list[tuple[tuple[Alarm, ...], Session]]()
    for figures in runs:
        alarms, [session] = judged(results(figures), sessions)
        found.append((alarms, session))
        sessions.append(found[-1][1])
    return found


def drawn(num: int, seed: int, factor: float = 1.0) -> list[list[Figure]]:
    costs = np.exp(np.random.default_rng(seed).normal(0.0, BETWEEN, num)) * factor
    return [[figure(float(cost))] for cost in costs]


def is_suspect(session: Session) -> bool:
    return any(entry.suspect for entry in session.entries)


def test_a_planted_slow_down_of_a_tenth_alarms_in_its_second_run_and_not_in_its_first() -> None:
    found = told([*drawn(20, seed=1), *drawn(3, seed=101, factor=1.1)])

    assert [bool(alarms) for alarms, _ in found] == [False] * 21 + [True, True]
    [alarm] = found[21][0]
    assert (alarm.row, alarm.arm) == ("row", "ours")
    assert 1.05 < alarm.ratio < 1.15 and alarm.p_value < 0.01
    assert str(alarm).startswith("row, ours: 1.0")


def test_nine_of_ten_planted_slow_downs_are_found() -> None:
    found = [told([*drawn(20, seed), *drawn(2, seed + 1_000, factor=1.1)])[-1][0] for seed in range(60)]

    assert sum(map(bool, found)) >= 54


def test_a_planted_speed_up_alarms_never() -> None:
    found = told([*drawn(20, seed=3), *drawn(5, seed=4, factor=0.7)])

    assert not any(alarms or is_suspect(session) for alarms, session in found)


def test_of_sixty_runs_of_equal_code_at_most_one_is_suspected_and_none_twice_running() -> None:
    for seed in range(5):
        tried = told(drawn(65, seed))[5:]

        assert sum(is_suspect(session) for _, session in tried) <= 1
        assert not any(alarms for alarms, _ in tried)


def test_equal_code_of_a_hundred_rows_is_not_suspected_for_their_number() -> None:
    draw = np.random.default_rng(5)
    runs = [[figure(float(np.exp(draw.normal(0.0, 0.1))), f"row {at}") for at in range(100)] for _ in range(30)]

    assert sum(is_suspect(session) for _, session in told(runs)) <= 1


def test_a_slow_run_alone_is_no_alarm_and_no_part_of_the_baseline() -> None:
    slow, sound = drawn(1, seed=7, factor=1.3), drawn(12, seed=6)

    found = told([*sound, *slow, *drawn(1, seed=8), *slow, *slow])

    assert [bool(alarms) for alarms, _ in found[12:]] == [False, False, False, True]


def test_nothing_is_judged_before_there_are_five_runs() -> None:
    found = told([*drawn(4, seed=9), *drawn(2, seed=10, factor=5.0)])

    assert not any(is_suspect(session) for _, session in found[:5])


def test_runs_of_another_mode_are_no_baseline() -> None:
    sessions = [replace(session, mode="full") for _, session in told(drawn(20, seed=11))]

    _, [session] = judged(results([figure(3.0)]), sessions)

    assert not is_suspect(session)


def test_a_rate_that_falls_is_slower() -> None:
    runs = [[replace(one, higher=True) for one in figures] for figures in drawn(20, seed=12)]
    slower = [[replace(one, higher=True) for one in figures] for figures in drawn(2, seed=13, factor=0.85)]

    assert told([*runs, *slower])[-1][0]


def test_what_slows_the_machine_and_its_limit_alike_is_no_slow_down() -> None:
    def run(speed: float) -> list[Figure]:
        limit = Figure("row", "copy", "p50", 0.5 * speed, "ms", 30)
        per = Figure("row", "ours", "per limit", 2.0, "x", 30, "derived", vs=Ratio("copy", 2.0, 1.9, 2.1))
        return [figure(1.0 * speed), limit, per]

    found = told([*(run(1.0 + 0.01 * (at % 3)) for at in range(10)), run(2.0), run(2.0)])

    assert not any(is_suspect(session) for _, session in found)
    assert [entry.arm for entry in found[0][1].entries] == ["ours"]


def test_an_alarm_is_an_exit_status_in_gate_mode_alone() -> None:
    alarm = (Alarm("row", "ours", 1.1, 0.001),)

    assert replace(results([], EFFORTS["gate"]), alarms=alarm).status == 1
    assert replace(results([], EFFORTS["quick"]), alarms=alarm).status == 0


def test_a_missed_target_is_an_exit_status_only_where_it_is_a_gate_and_in_gate_mode() -> None:
    missed = replace(figure(2.0), target=1.0)

    statuses = [
        results([replace(missed, gate=gate)], effort).status
        for gate, effort in ((True, EFFORTS["gate"]), (False, EFFORTS["gate"]), (True, EFFORTS["quick"]))
    ]

    assert statuses == [1, 0, 0]


def test_a_store_gives_back_the_runs_of_its_machine_and_no_other(tmp_path: Path) -> None:
    store, (_, session) = Store(tmp_path / "new"), told(drawn(1, seed=14))[0]

    store.add("one", session)
    store.add("one", session)

    assert (Store(tmp_path / "new").sessions("one"), store.sessions("other")) == ([session, session], [])


def test_a_line_cut_short_is_left_out_and_the_next_run_begins_a_line(tmp_path: Path) -> None:
    store, (_, session) = Store(tmp_path), told(drawn(1, seed=15))[0]
    store.add("one", session)
    with (tmp_path / "one.jsonl").open("a") as file:
        file.write('{"at_s": 12')

    assert store.sessions("one") == [session]
    store.add("one", session)
    assert store.sessions("one") == [session, session]


def test_a_line_that_is_no_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text("not json\n")

    with pytest.raises(SettingError, match=r"line 1 of .*one.jsonl is 'not json'; expected a run's line"):
        Store(tmp_path).sessions("one")


def test_a_store_that_is_no_store_is_a_failure_and_loses_no_figure(tmp_path: Path) -> None:
    (tmp_path / f"{machine().key}.jsonl").write_text("not json\n")
    (tmp_path / "file").write_text("")

    for folder in (tmp_path, tmp_path / "file"):
        found = run([row(arm("ours", nothing))], BRIEF, store=Store(folder))

        [failure] = found.failures
        assert isinstance(failure, SettingError) and str(folder) in str(failure)
        assert found.figures and found.status == 1


def test_a_run_that_ends_while_another_one_is_remembered_waits(tmp_path: Path) -> None:
    store, (_, session) = Store(tmp_path), told(drawn(1, seed=16))[0]
    adding = threading.Thread(target=store.add, args=("one", session), daemon=True)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)

    adding.start()
    adding.join(0.1)
    before = store.sessions("one")
    os.close(held)
    adding.join()

    assert (before, store.sessions("one")) == ([], [session])


def test_how_much_a_soak_did_is_no_cost() -> None:
    runs = [
        [Figure("stability", "soak", stat, 1.5**at, stat, 1) for stat in ("steps", "lives", "refused")]
        for at in range(9)
    ]

    assert all(session.entries == () for _, session in told(runs))


def test_a_row_that_is_forgotten_begins_anew_and_the_others_stay(tmp_path: Path) -> None:
    store, (_, session) = Store(tmp_path), told([[figure(1.0, "slowed"), figure(2.0, "other")]])[0]
    store.add("one", session)

    store.forget("one", ["slowed"])

    assert [entry.row for entry in store.sessions("one")[0].entries] == ["other"]


def test_a_run_with_a_store_is_remembered_and_compared_with_the_ones_before(tmp_path: Path) -> None:
    store = Store(tmp_path)

    told_of = [run([row(arm("ours", nothing))], BRIEF, store=store) for _ in range(2)]

    sessions = store.sessions(told_of[0].machine.key)
    assert [len(session.entries) for session in sessions] == [1, 1]
    assert sessions[1].entries[0].name == ("row", "", "ours", "p50") and len(sessions[1].entries[0].samples) == 30
    assert all(results.alarms == () for results in told_of)
