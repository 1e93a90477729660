"""A wall clock that is stepped from outside, through a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

SECOND_NS = 1_000_000_000


def stepped(path: Path) -> Callable[[], int]:
    """time.time_ns, off by as many seconds as the file says; right where there is none."""

    def now_ns() -> int:
        return time.time_ns() + int(offset_s(path) * SECOND_NS)

    return now_ns


def offset_s(path: Path) -> float:
    try:
        return float(path.read_text())
    except FileNotFoundError:
        return 0.0


def step(path: Path, seconds: float) -> None:
    """From now on the clock is so far off. Whole: a reader meets the old step or the new one."""
    aside = path.with_suffix(".aside")
    aside.write_text(str(seconds))
    aside.rename(path)
