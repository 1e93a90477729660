"""A process that is given a part of a processor has no more, and has all of it again afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import wait_until
from tests.faults.share import Spinner, crowded, limited

PERCENT = 20
LASTS_S = 0.5


@pytest.mark.parametrize("means", [limited, crowded])
def test_it_has_no_more_than_its_part(
    means: Callable[[int, int, Path], AbstractContextManager[Any]], tmp_path: Path
) -> None:
    with Spinner(tmp_path / "limited.log") as child:
        before = how(child.pid)
        with means(child.pid, PERCENT, tmp_path):
            within = how(child.pid)
            began_s, spent_s = time.monotonic(), processor_s(child.pid)
            wait_until(lambda: time.monotonic() > began_s + LASTS_S, "it ran for a while")
            spent_s, lasted_s = processor_s(child.pid) - spent_s, time.monotonic() - began_s

        assert within != before or os.cpu_count() == 1
        assert spent_s < 2 * lasted_s * PERCENT / 100
        assert how(child.pid) == before


def how(pid: int) -> tuple[int, set[int]]:
    """It runs, and where."""
    return os.sched_getscheduler(pid), os.sched_getaffinity(pid)


def processor_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
