"""Benchmarks print what the design says that they print."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from bus_arms.arm import ArmError  # noqa: E402
from bus_rows.session import QUICK, Session  # noqa: E402
from esper.bus.embedded import find_server  # noqa: E402
from report import Report, by_round, quantile, ratio  # noqa: E402


def test_each_line_is_one_json_object_with_the_fields_agreed_on(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("seal")
    report.add_arms("row", {"ours": [2.0] * 80, "bare": [1.0] * 80}, "us", against="bare")

    report.show(as_json=True)

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(line["arm"], line["stat"]) for line in lines} == {(a, s) for a in ("ours", "bare") for s in ("p50", "p99")}
    assert {*lines[0]} == {"bench", "row", "arm", "stat", "value", "unit", "n", "label", "vs"}
    assert lines[0]["vs"] == {"arm": "bare", "ratio": 2.0, "low": 2.0, "high": 2.0}


def test_the_median_and_the_tail_are_elements_of_the_sample() -> None:
    values = [float(value) for value in range(100, 0, -1)]

    assert (quantile(values, 0.5), quantile(values, 0.99)) == (51.0, 100.0)


def test_the_interval_of_a_ratio_holds_the_true_one_where_the_arms_drift_together() -> None:
    drift = [1.0 + at / 1000 for at in range(4000)]
    noisy = [value * (1.1 + 0.01 * (-1) ** at) for at, value in enumerate(drift)]

    found = ratio(noisy, drift, "drift")

    assert found.low <= 1.1 * 1.01 and found.high >= 1.1 * 0.99
    assert found.high - found.low < 0.05


def test_a_ratio_by_round_is_blind_to_what_slows_every_arm_of_a_round() -> None:
    busy = [1.0, 3.0, 0.5, 2.0, 1.5]

    found = by_round([0.7 * rate for rate in busy], busy, "bare")

    assert (found.ratio, found.low, found.high) == pytest.approx((0.7, 0.7, 0.7))


def test_an_arm_that_was_not_measured_says_why() -> None:
    report = Report("bus")

    report.add_missing("row", "arq", "msg/s", "arq is not installed")

    [line] = report.lines
    assert (line["value"], line["n"], line["label"]) == (None, 0, "not measured: arq is not installed")


def test_the_bus_benchmark_checks_every_arm_and_prints_json_alone(tmp_path: Path) -> None:
    (tmp_path / "redis-server").symlink_to(find_server())
    lines = bus("--row", "consume", "--num", "300", "--rounds", "2", path=tmp_path)

    packet = {str(line["arm"]): line for line in lines if line["row"] == "consume packet"}
    assert {"ours", "ours, shared group", "bare", "bare again", "target"} <= {*packet}
    assert packet["ours"]["n"] == 600 and packet["ours"]["label"] == "measured"
    assert packet["redis-benchmark"]["label"] == "not measured: redis-benchmark not on PATH"
    assert {line["row"] for line in lines} == {
        "consume packet",
        "consume command",
        "consume command, two receipts",
    }


def test_an_arm_that_fails_is_told_of_and_the_others_go_on(tmp_path: Path) -> None:
    session = Session("unix:///nowhere", tmp_path, replace(QUICK, rounds=3), Report("bus"), random.Random(0))

    def broken() -> float:
        raise ArmError("arq", "handled 9 messages, 9 different ones, of 10")

    rates = session.in_turns("row", "msg/s", {"ours": lambda: 2.0, "arq": broken})

    assert rates == {"ours": [2.0, 2.0, 2.0]}
    assert session.failures == ["row: arq: handled 9 messages, 9 different ones, of 10"]


def test_the_bus_benchmark_counts_what_the_collector_tracks() -> None:
    lines = bus("--row", "allocations")

    counts = {(line["row"], line["arm"]): line["value"] for line in lines if line["label"] == "derived"}
    assert {row for row, _ in counts} == {"tracked objects, packet", "tracked objects, command"}


def bus(*arguments: str, path: Path | None = None) -> list[dict[str, object]]:
    """Run it, with nothing but this on PATH."""
    command = [sys.executable, "bench/bus.py", "--quick", "--json", *arguments]
    environment = {**os.environ, "PATH": str(path)} if path else None
    answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=50, env=environment)
    return [json.loads(line) for line in answer.stdout.splitlines()]
