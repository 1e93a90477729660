"""Units of short-lived processes, and what is said of them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from esper.runtime.crew.runfile import Restart
from esper.runtime.crew.spawn import Program
from esper.runtime.crew.unit import Plan, State, Unit

AT_ONCE = Restart(first_s=0.0, limit=2, window_s=60.0)
STAY = "exec sleep 600"


class Said:
    """Every event, in the order in which it was said."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self._new = asyncio.Event()

    def __call__(self, event: str, **facts: Any) -> None:
        self.events.append((event, facts))
        self._new.set()

    def of(self, unit: str) -> list[str]:
        return [event.partition(".")[2] for event, facts in self.events if facts.get("unit") == unit]

    async def until(self, event: str, times: int = 1) -> None:
        while sum(each == event for each, _ in self.events) < times:
            self._new.clear()
            await self._new.wait()


def shell(name: str, script: str, limits: str = "", **environment: str) -> Program:
    return Program(name, ["sh", "-c", script], environment, limits)


def plan(name: str, *scripts: str, role: str = "", **options: Any) -> Plan:
    """A unit of shells; it is ready once it is started, unless told otherwise."""
    programs = tuple(
        shell(f"{name}-{number}" if len(scripts) > 1 else name, each) for number, each in enumerate(scripts)
    )
    return Plan(name, role or name, programs, **{"restart": AT_ONCE, "tells_ready": False, "stop_s": 5.0, **options})


def unit(logs: Path, said: Said, *arguments: Any, **options: Any) -> Unit:
    made = Unit(plan(*arguments, **options), logs, {}, said)
    made.begin()
    return made


def one_port() -> Callable[[], dict[str, str]]:
    """Finds a free port for the first start, and none for a second."""
    ports = iter(["4711"])

    def port() -> dict[str, str]:
        for each in ports:
            return {"PORT": each}
        raise OSError(errno.EMFILE, "Too many open files")

    return port


async def while_tended(made: Unit, work: Any) -> State:
    """Tend it, do this meanwhile, then end it; the state in which it is left."""
    task = asyncio.create_task(made.tend())
    try:
        await work
    finally:
        made.tell(again=False)
        await task
    return made.state
