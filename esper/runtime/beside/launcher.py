"""Ends a rank whose torchrun was killed outright: it would train on in the way of the group that takes its place."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import TypeVar

from esper.errors import EvictedError
from esper.runtime.crew.procs import look
from esper.runtime.ending import along, meanwhile

T = TypeVar("T")

BY_TORCHRUN = "TORCHELASTIC_RUN_ID"
"""Set by torchrun in each rank. Who starts a trainer otherwise, such as a shell, may end long before it."""
LOOK_S = 0.5


def launcher_of(environment: Mapping[str, str], parent: int) -> int:
    """The process without which this trainer is not to go on; 0: it goes on alone."""
    return parent if BY_TORCHRUN in environment else 0


async def launcher_gone(trainer: int, launcher: int, look_s: float = LOOK_S) -> None:
    """Raises EvictedError once the trainer has another parent. Waits for ever where it has no launcher, or has ended
    itself: its runtime is told so otherwise."""
    while launcher:
        with suppress(OSError):  # no descriptor is left to look with: another time there is
            found = look(trainer)
            if found is None or found.is_zombie:
                break
            if found.parent != launcher:
                left = f"left this rank ({trainer}) to nobody: it ends too"
                raise EvictedError(f"torchrun ({launcher}) has ended, and {left}")
        await asyncio.sleep(look_s)
    await asyncio.Event().wait()


async def while_launched(work: Coroutine[object, object, T], trainer: int, launcher: int) -> T:
    """Do this work for a trainer; EvictedError, and the work is cancelled, once its launcher is gone."""
    async with meanwhile(launcher_gone(trainer, launcher)) as watch:
        return await along(work, watch)
