"""Some seconds of the soak, interrupted or killed in between: what was recorded is reported, and gone on from."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from esper.bench.soak.soaked import read
from esper.bench.soak.stability import soak
from esper.bench.work.growth.churn import STEPS_PER_LIFE
from tests.faults.processes import wait_until

SOAK = [sys.executable, "-m", "esper.cli.main", "bench", "soak", "--json", "--every", "0.1", "--samples"]
MORE_H = 0.001  # some lives of seeds
PATIENCE_S = 150.0


def until_sampled(path: Path, times: int, soaking: subprocess.Popen[str]) -> None:
    """Wait for so many samples, and not for one that has ended."""

    def reached() -> bool:
        assert soaking.poll() is None
        return path.exists() and path.read_text().count("\n") >= times

    wait_until(reached, f"{times} samples are taken", PATIENCE_S)


def figures(said: str) -> dict[str, float]:
    lines = [json.loads(line) for line in said.splitlines()]
    return {line["stat"]: line["value"] for line in lines if line["value"] is not None}


def test_it_is_interrupted_reported_gone_on_from_and_finds_no_error(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    with subprocess.Popen([*SOAK, str(path), "--hours", "1"], stdout=subprocess.PIPE, text=True) as soaking:
        until_sampled(path, 3, soaking)
        soaking.send_signal(signal.SIGINT)
        said = figures(soaking.communicate(timeout=PATIENCE_S)[0])

    assert soaking.returncode == 130
    assert said["steps"] > 0

    hours = read(path)[-1].hours + MORE_H
    answer = subprocess.run(
        [*SOAK, str(path), "--hours", str(hours)], check=True, capture_output=True, text=True, timeout=170
    )

    found = figures(answer.stdout)
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    assert {sample["session"] for sample in samples} == {1, 2}
    assert found["steps"] > said["steps"]
    newest = {sample["session"]: sample for sample in samples}.values()
    assert found["lives"] == sum((sample["steps"] - 1) // STEPS_PER_LIFE for sample in newest)
    assert found["errors"] == 0, samples[-1]["last_error"]
    assert samples[-1]["hours"] >= hours


def test_it_is_gone_on_from_where_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    with subprocess.Popen([*SOAK, str(path), "--hours", "1"], stdout=subprocess.DEVNULL, text=True) as soaking:
        until_sampled(path, 2, soaking)
        soaking.kill()
    left = read(path)

    found = soak(left[-1].hours + 1e-5, out=path, every_s=0.02)

    assert len(left) >= 2 and found.samples[: len(left)] == tuple(left)
    assert {sample.session for sample in found.samples} == {1, 2}
    assert found.total("steps") > left[-1].steps and found.total("errors") == 0
    hours = [sample.hours for sample in found.samples]
    assert hours == sorted(hours)
