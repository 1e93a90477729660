"""Arms whose set-up is loaded when it is called, so that listing rows loads neither torch nor Redis."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name

from esper.bench.arm import Arm, Ready
from esper.bench.figures import Figure

WORK = "esper.bench.work"


def lazily(name: str, where: str, *given: object) -> Arm:
    """An arm set up by `where(*given)`, "module:function" below esper.bench.work."""

    def set_up() -> Ready:
        ready: Ready = resolve_name(f"{WORK}.{where}")(*given)
        return ready

    return Arm(name, set_up)


def measured_by(where: str) -> Callable[..., list[Figure]]:
    """The `measure` of a Measurement, loaded in the same way."""

    def measure(*given: object) -> list[Figure]:
        return list(resolve_name(f"{WORK}.{where}")(*given))

    return measure
