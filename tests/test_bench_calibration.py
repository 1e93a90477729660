"""The calibration of G4 counts what it says that it counts."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from esper.leyline import contracts as pb

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from calibration import Look, main, wilson  # noqa: E402


@pytest.mark.parametrize(("held", "num"), [(476, 500), (93, 100), (1, 40)])
def test_the_ends_of_the_interval_are_shares_at_which_the_count_is_just_not_surprising(held: int, num: int) -> None:
    for end in wilson(held, num):
        distance = abs(held / num - end) / math.sqrt(end * (1 - end) / num)
        assert distance == pytest.approx(1.95996, abs=1e-4)


def test_a_bound_at_another_error_keeps_the_standard_error() -> None:
    look = Look(pb.PairedGain(mean=1.0, low=1.0 - 2.1280452 * 0.1), fresh=0.0, fossilized=True)

    assert look.low(0.05 / 3) == pytest.approx(look.gain.low)
    assert look.low(0.05) == pytest.approx(1.0 - 1.6448536 * 0.1)


def test_it_prints_one_object_a_line_with_n_and_an_interval(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["calibration.py", "--json", "--num", "4"])

    assert main() == 0

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    bounds = [line for line in lines if line["row"] == "lower bound holds" and line["label"] == "measured"]
    assert all(line["n"] > 0 and line["vs"]["low"] <= line["value"] <= line["vs"]["high"] for line in bounds)
    assert {line["arm"] for line in bounds} >= {"fossils, at 98.3%", "fossils, at 95.0%"}
