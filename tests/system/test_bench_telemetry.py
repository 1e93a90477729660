"""The rows of the telemetry's tiers fold in every form what they were given, beside the bare loop and numpy alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from bus_rows.served import measured  # noqa: E402
from bus_rows.session import Amounts  # noqa: E402
from esper.bench.effort import EFFORTS  # noqa: E402
from telemetry_rows import fold  # noqa: E402

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


def test_the_rows_of_the_tiers_check_every_arm_of_every_form() -> None:
    found = list(measured("tiers-fold", fold.measure, {"quick": Amounts(num=1_024, rounds=1)}, EFFORTS["quick"]))

    told = {(figure.row, figure.arm) for figure in found if figure.label == "measured"}
    arms = ("ours", "bare", "bare again", "numpy")
    arms_of_the_processor = ("ours, processor", "bare, processor", "bare again, processor")
    forms = ("packets", "frames", "columns")
    assert told >= {(f"tiers-fold, tier 1, {form}", arm) for form in forms for arm in (*arms, *arms_of_the_processor)}
    assert all(figure.value for figure in found)
