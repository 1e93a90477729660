"""Eighteen seconds of the soak, interrupted in between: what was recorded is reported, and gone on from."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

SOAK = [sys.executable, "-m", "esper.cli.main", "bench", "soak", "--json", "--every", "0.1", "--samples"]
HOURS = 0.005
PATIENCE_S = 50.0


def figures(said: str) -> dict[str, float]:
    lines = [json.loads(line) for line in said.splitlines()]
    return {line["stat"]: line["value"] for line in lines if line["value"] is not None}


@pytest.mark.timeout(150)
def test_it_is_interrupted_reported_gone_on_from_and_finds_no_error(tmp_path: Path) -> None:
    path, ends = tmp_path / "soak.jsonl", time.monotonic() + PATIENCE_S
    with subprocess.Popen([*SOAK, str(path), "--hours", "1"], stdout=subprocess.PIPE, text=True) as soaking:
        while (not path.exists() or path.read_text().count("\n") < 3) and time.monotonic() < ends:
            assert soaking.poll() is None
        soaking.send_signal(signal.SIGINT)
        said = figures(soaking.communicate(timeout=PATIENCE_S)[0])

    assert soaking.returncode == 130
    assert said["steps"] > 0

    answer = subprocess.run(
        [*SOAK, str(path), "--hours", str(HOURS)], check=True, capture_output=True, text=True, timeout=90
    )

    found = figures(answer.stdout)
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    assert {sample["session"] for sample in samples} == {1, 2}
    assert found["steps"] > said["steps"] and found["lives"] >= 1
    assert found["errors"] == 0, samples[-1]["last_error"]
    assert samples[-1]["hours"] >= HOURS
