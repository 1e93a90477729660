"""The telemetry benchmark folds in every form what it was given, beside the bare loop and numpy alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.system
def test_the_telemetry_benchmark_checks_every_arm_of_every_form() -> None:
    command = [sys.executable, "bench/telemetry.py", "--quick", "--json", "--row", "fold", "--rounds", "1"]

    answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=100)

    lines = [json.loads(line) for line in answer.stdout.splitlines()]
    measured = {(line["row"], line["arm"]) for line in lines if line["label"] == "measured"}
    arms = ("ours", "bare", "bare again", "numpy")
    arms_of_the_processor = ("ours, processor", "bare, processor", "bare again, processor")
    forms = ("packets", "frames", "columns")
    assert measured >= {(f"tier 1, {form}", arm) for form in forms for arm in (*arms, *arms_of_the_processor)}
    assert all(line["value"] > 0 for line in lines)
