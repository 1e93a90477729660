"""Adds the same bytes again where Redis was away, and says that it has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from esper.bus.backoff import Backoff
from esper.bus.faults import LostError, UnavailableError

Add: TypeAlias = Callable[[str, bytes], Awaitable[str]]


class Added(NamedTuple):
    """An entry. `again`: it was not the first try, so other entries may hold the same bytes."""

    entry_id: str
    again: bool


async def add_until_answered(
    add: Add,
    stream: str,
    sealed: bytes,
    patience_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Added:
    """Try for so long, and not later, as readers refuse what was sealed long ago. Then the last error comes out.

    LostError where it was that of any try: the entry may be there, whatever the last one says of itself.
    """
    deadline = clock() + patience_s
    lost: LostError | None = None
    backoff: Backoff | None = None
    while True:
        try:
            return Added(await add(stream, sealed), again=backoff is not None)
        except UnavailableError as error:
            backoff = backoff or Backoff()  # not sooner: its dice cost as much as the rest
            wait_s = backoff.next_s()
            if clock() + wait_s > deadline:
                if lost is None or isinstance(error, LostError):
                    raise
                raise lost from error
            lost = error if isinstance(error, LostError) else lost
        await pause(wait_s)
