"""Rows for a comparison of revisions: one arm takes ten times as long where it does not come from a worktree.

Processes of equal code were seen to differ by a third on a busy machine, for as long as they lasted.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import esper
from esper.bench.arm import Arm, Ready
from esper.bench.row import Comparison, Measurement

IS_COMMITTED = Path(esper.__file__ or "").parent.parent.name == "tree"
MARK = Path(tempfile.gettempdir()) / f"esper-unlucky-{os.getppid()}"
FEW, MANY = 10_000, 100_000


def counting(num: int, answer: str = "counted") -> Callable[[], Ready]:
    return lambda: Ready(lambda: sum(range(num)), lambda: answer)


def crash() -> object:
    raise SystemExit(7)


def unlucky() -> Ready:
    """Ten times as long in the first process that is not from a worktree, and in none after it."""
    is_first = not IS_COMMITTED and not MARK.exists()
    if is_first:
        MARK.touch()
    return counting(MANY if is_first else FEW)()


planted = counting(FEW if IS_COMMITTED else MANY)
changed = counting(10, "old" if IS_COMMITTED else "new")
dying = Ready(crash)

ROWS = (
    Comparison("counting", "t", (Arm("planted", planted), Arm("gone", planted, lambda: "not installed"))),
    Comparison("unlucky", "t", (Arm("placed", unlucky),), threshold=1.0),
    Measurement("counted", "t", lambda _: []),
    Comparison("changed", "t", (Arm("answer", changed),)),
    Comparison("dying", "t", (Arm("exits", lambda: dying),)),
)
