"""The calibration of G4 counts what it says that it counts."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import cast

import pytest

from esper.bench.effort import EFFORTS, Mode
from esper.leyline import contracts as pb

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from kasmina_rows.calibrated import NUM, Look, measure, wilson  # noqa: E402


@pytest.mark.parametrize(("held", "num"), [(476, 500), (93, 100), (1, 40)])
def test_the_ends_of_the_interval_are_shares_at_which_the_count_is_just_not_surprising(held: int, num: int) -> None:
    for end in wilson(held, num):
        distance = abs(held / num - end) / math.sqrt(end * (1 - end) / num)
        assert distance == pytest.approx(1.95996, abs=1e-4)


def test_a_bound_at_another_error_keeps_the_standard_error() -> None:
    look = Look(pb.PairedGain(mean=1.0, low=1.0 - 2.1280452 * 0.1), fresh=0.0, fossilized=True)

    assert look.low(0.05 / 3) == pytest.approx(look.gain.low)
    assert look.low(0.05) == pytest.approx(1.0 - 1.6448536 * 0.1)


def test_the_share_of_bounds_that_hold_has_its_n_and_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast(dict[Mode, int], NUM), "quick", 4)

    figures = {(figure.row, figure.arm): figure for figure in measure(EFFORTS["quick"])}

    bounds = [figure for (row, _), figure in figures.items() if row == "calibration, lower bound holds"]
    assert {figure.arm for figure in bounds} >= {"fossils, at 98.3%", "fossils, at 95.0%"}
    for figure in bounds:
        assert figure.vs is not None and figure.value is not None
        assert figure.num > 0 and figure.vs.low <= figure.value <= figure.vs.high
    assert figures["calibration, seeds", "germinated"].value == 4
