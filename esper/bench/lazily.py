"""Arms whose set-up is loaded when it is called, so that listing rows loads neither torch nor Redis."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

from esper.bench.arm import Arm, Ready
from esper.bench.figures import Figure

WORK = "esper.bench.work"
THREADS = 1
"""Of torch, as the fingerprint says: where cores are shared, threads spin for milliseconds on tensors so small."""


def lazily(name: str, where: str, *given: object, below: str = WORK, needs: Sequence[str] = ()) -> Arm:
    """An arm set up by `where(*given)`, "module:function" below a package, where what it `needs` is installed."""

    def set_up() -> Ready:
        ready: Ready = loaded(where, below)(*given)
        return ready

    return Arm(name, set_up, partial(missing, *needs) if needs else None)


def missing(*packages: str) -> str:
    """Which of these is not installed; empty where all are."""
    absent = next((package for package in packages if find_spec(package) is None), "")
    return f"{absent} is not installed" if absent else ""


def measured_by(where: str, below: str = WORK) -> Callable[..., list[Figure]]:
    """The `measure` of a Measurement, loaded in the same way."""

    def measure(*given: object) -> list[Figure]:
        return list(loaded(where, below)(*given))

    return measure


def loaded(where: str, below: str = WORK) -> Any:
    """What stands at "module:function" below a package; torch runs in one thread from then on."""
    found = resolve_name(f"{below}.{where}")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(THREADS)
    return found
