"""The benchmarks of bench/ print what the design says that they print, and check every arm."""

from __future__ import annotations

import json
import random
import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import script  # noqa: E402
from bus_arms.pace import counted_s  # noqa: E402
from bus_rows import consume  # noqa: E402
from bus_rows.served import measured  # noqa: E402
from bus_rows.session import QUICK, Amounts, Session  # noqa: E402
from esper.bench.effort import EFFORTS  # noqa: E402
from esper.bench.figures import Ratio  # noqa: E402
from esper.bench.registry import chosen, registered  # noqa: E402
from esper.bench.rounds.part import PartError  # noqa: E402
from esper.bench.runner import run  # noqa: E402
from esper.bench.timing.blame import ArmFailedError  # noqa: E402
from esper.bus.embedded import find_server  # noqa: E402
from report import Report, by_round, quantile, ratio  # noqa: E402


def test_arms_have_their_median_and_their_tail_as_ratios_to_one_of_them() -> None:
    report = Report("seal")

    report.add_arms("row", {"ours": [2.0] * 80, "bare": [1.0] * 80}, "us", against="bare")

    found = {(figure.arm, figure.stat): figure.vs for figure in report.figures}
    assert {*found} == {(arm, stat) for arm in ("ours", "bare") for stat in ("p50", "p99")}
    assert found["ours", "p50"] == Ratio("bare", 2.0, 2.0, 2.0) and found["bare", "p50"] is None


[PARTS] = re.findall(r"^PARTS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("part", PARTS.split())
def test_every_file_of_rows_is_a_script_of_its_rows(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ROOT / "bench" / f"{part}.py"
    asked: list[list[str]] = []
    monkeypatch.setattr(script, "app", asked.append)
    monkeypatch.setattr(sys, "argv", [str(file), "--json"])

    runpy.run_path(str(file), run_name="__main__")

    [[bench, verb, family, *others]] = asked
    assert (bench, verb, others[-2:]) == ("bench", "run", ["--full", "--json"])
    assert others[others.index("--from") + 1] == str(file)
    assert family in {row.family for row in registered([file]).values()}


def test_the_script_of_the_bus_measures_its_peers_too_and_what_a_seal_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(script, "app", asked.append)
    monkeypatch.setattr(sys, "argv", ["bus.py", "--json"])

    runpy.run_path(str(ROOT / "bench" / "bus.py"), run_name="__main__")

    [[_, _, *words]] = asked
    files = [Path(words[at + 1]) for at, word in enumerate(words) if word == "--from"]
    rows = {row.name for row in chosen(words[: words.index("--from")], registered(files))}
    assert {"bus-consume", "peers-throughput-command", "peers-latency-command", "hmac-verify-state"} <= rows
    assert {"bus-flat", "bus-allocations", "message-kinds"} <= rows


def test_the_script_of_steps_names_rows_that_the_suite_has(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(script, "app", asked.append)
    monkeypatch.setattr(sys, "argv", ["step.py", "--gate"])

    runpy.run_path(str(ROOT / "bench" / "step.py"), run_name="__main__")

    [[_, _, *rows, effort]] = asked
    assert rows and {*rows} <= {*registered()} and effort == "--gate"


def test_a_file_of_rows_is_a_script_that_prints_one_json_object_a_line_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chosen = ["checkpoints-forgeries", "--json", "--quick", "--store", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["checkpoints.py", *chosen])

    with pytest.raises(SystemExit) as ended:
        script.main(["checkpoints"], str(ROOT / "bench" / "checkpoints.py"))

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(line["bench"], line["row"]) for line in lines} == {("checkpoints", "checkpoints-forgeries")}
    assert {*lines[0]} >= {"bench", "row", "arm", "stat", "value", "unit", "n", "label"}
    assert sum(line["value"] for line in lines) >= lines[0]["n"] and ended.value.code == 0


def test_a_kernel_that_does_not_count_says_nothing_of_who_waited_for_a_processor() -> None:
    assert counted_s("2000000000 500000000 17\n") == [2.0, 0.5]
    assert counted_s("0 0 0\n") == []


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

    [figure] = report.figures
    assert (figure.value, figure.num, figure.label) == (None, 0, "not measured: arq is not installed")


def test_what_is_asked_for_of_a_figure_is_met_or_missed_beside_it() -> None:
    report = Report("bus")
    report.add_rates("row", {"ours": [40.0, 40.0], "bare": [100.0, 100.0]}, {"ours": 1, "bare": 1}, against="bare")

    report.aim("row", "ours", "rate", 30.0, higher=True)
    report.aim_ratio("row", "ours", "rate", 0.5, higher=True)

    ours, bare, ratio = report.figures
    assert (ours.met, bare.met, ratio.met) == (True, None, False)
    assert ratio.value == pytest.approx(0.4)
    assert (ratio.stat, ratio.unit, ratio.label) == ("ratio", "x", "derived")


def test_the_rows_of_the_bus_check_every_arm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "redis-server").symlink_to(find_server())
    monkeypatch.setenv("PATH", str(tmp_path))

    found = list(measured("bus-consume", consume.measure, {"quick": Amounts(num=300, rounds=2)}, EFFORTS["quick"]))

    packet = {(each.arm, each.stat): each for each in found if each.row == "bus-consume, consume packet"}
    assert {(arm, "rate") for arm in ("ours", "ours, shared group", "bare", "bare again")} <= {*packet}
    assert (packet["ours", "rate"].num, packet["ours", "rate"].target) == (600, 100_000)
    assert packet["redis-benchmark", "rate"].label == "not measured: redis-benchmark not on PATH"
    assert {figure.row for figure in found} == {
        "bus-consume, consume packet",
        "bus-consume, consume command",
        "bus-consume, consume command, two receipts",
    }


def test_an_arm_that_fails_is_told_of_and_the_others_go_on(tmp_path: Path) -> None:
    session = Session("unix:///nowhere", tmp_path, replace(QUICK, rounds=3), Report("bus"), random.Random(0))

    def broken() -> float:
        raise PartError("arq", "handled 9 messages, 9 different ones, of 10")

    rates = session.in_turns("row", "msg/s", {"ours": lambda: 2.0, "arq": broken})

    assert rates == {"ours": [2.0, 2.0, 2.0]}
    assert session.failures == ["row: arq: handled 9 messages, 9 different ones, of 10"]


def test_a_row_with_an_arm_that_failed_fails_once_the_others_are_told() -> None:
    def measure(session: Session) -> None:
        session.report.add("row", "ours", "rate", 2.0, "msg/s", 1)
        raise PartError("arq", "hung")

    figures = measured("bus-row", measure, {"quick": QUICK}, EFFORTS["quick"])
    told = [next(figures), next(figures)]

    with pytest.raises(ArmFailedError, match="hung"):
        next(figures)
    assert [(figure.row, figure.arm, figure.value) for figure in told] == [
        ("bus-row, row", "ours", 2.0),
        ("bus-row, bus-row", "all", None),
    ]


def test_a_file_of_rows_counts_what_the_collector_tracks() -> None:
    rows = registered([ROOT / "bench" / "bus.py"])

    found = run([rows["bus-allocations"]], EFFORTS["quick"])

    counts = {figure.row: figure.value for figure in found.figures if figure.label == "derived"}
    assert found.failures == ()
    assert {*counts} == {f"bus-allocations, tracked objects, {what}" for what in ("packet", "command")}


@pytest.mark.parametrize(
    "file",
    ["bus", "telemetry", "barrier", "kasmina", "calibration", "scale", "checkpoints", "peers/bus", "peers/steps"],
)
def test_each_file_of_rows_is_one_that_the_suite_takes(file: str) -> None:
    own = registered()

    rows = registered([ROOT / "bench" / f"{file}.py"])

    assert rows.keys() > own.keys()
