"""The far end: what a process is told, line by line, and how it answers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from esper.runtime import process


def given() -> dict[str, Any]:
    """The arguments."""
    read: dict[str, Any] = json.loads(sys.argv[1])
    return read


async def told() -> AsyncIterator[dict[str, Any]]:
    """Each line, until the near end hangs up."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


def say(answer: object) -> None:
    """One line to the near end."""
    print(json.dumps(answer), flush=True)


def run(main: Coroutine[Any, Any, None]) -> None:
    """On the loop that the processes of a run have. For good: it ends the process."""

    async def until_done(_: asyncio.Event) -> None:
        await main

    process.run(until_done)
