"""Rows for a comparison of revisions: one arm takes half as long again where it does not come from a worktree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import esper
from esper.bench.arm import Arm, Ready
from esper.bench.row import Comparison, Measurement

IS_COMMITTED = Path(esper.__file__ or "").parent.parent.name == "tree"


def counting(num: int, answer: str = "counted") -> Callable[[], Ready]:
    return lambda: Ready(lambda: sum(range(num)), lambda: answer)


def crash() -> object:
    raise SystemExit(7)


planted = counting(20_000 if IS_COMMITTED else 30_000)
changed = counting(10, "old" if IS_COMMITTED else "new")
dying = Ready(crash)

ROWS = (
    Comparison("counting", "t", (Arm("planted", planted), Arm("gone", planted, lambda: "not installed"))),
    Measurement("counted", "t", lambda _: []),
    Comparison("changed", "t", (Arm("answer", changed),)),
    Comparison("dying", "t", (Arm("exits", lambda: dying),)),
)
