"""Processes that `esper up` can't start end the run with status 1, however many they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.processes import Esper, runs_of

HEAD = """
name = "heavy"
runs_dir = "{runs}"
trainer.count = 0
coordinator.count = 0
regional.count = 0
global.count = 0
"""
PROCESS = """
[process.{name}]
command = ["sleep", "600"]
environment = {{TOO_LONG = "{value}"}}
"""


@pytest.mark.parametrize("names", [["one"], ["one", "two"]])
def test_what_can_not_be_started_is_told_and_status_1(
    esper: Callable[..., Esper], runtime: Path, names: list[str]
) -> None:
    path = runtime / "run.toml"
    longer_than_the_kernel_takes = "x" * (1 << 18)
    processes = [PROCESS.format(name=name, value=longer_than_the_kernel_takes) for name in names]
    path.write_text("".join([HEAD.format(runs=runtime / "runs"), *processes]))

    command = esper("up", "-f", path)

    assert command.ended() == 1
    assert "log: Argument list too long" in command.said[-1]
    assert not runs_of(runtime)
