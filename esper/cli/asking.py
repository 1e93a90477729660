"""What completion asks a live run, for a second at most. Most words that a shell completes need none of its imports."""

from __future__ import annotations

import asyncio

from esper.bus.upkeep import dead
from esper.cli.client import Controller, access, connect
from esper.leyline import contracts as pb

ASK_S = 1.0
MOST_LETTERS = 50


def beats(run: str) -> list[pb.Heartbeat]:
    """The newest heartbeat of each worker."""
    return asyncio.run(_beats(run))


def letters(run: str) -> list[str]:
    """Ids of dead letters, the newest first."""
    return asyncio.run(_letters(run))


async def _beats(run: str) -> list[pb.Heartbeat]:
    async with asyncio.timeout(ASK_S), Controller.connect(run, name="completion") as controller:
        return [beat for _, beat in sorted((await controller.status()).items())]


async def _letters(run: str) -> list[str]:
    async with asyncio.timeout(ASK_S):
        found = await access.find(run)
        async with connect.writer(found.redis_url) as redis:
            return await dead.newest(redis, found.run_id, MOST_LETTERS)
