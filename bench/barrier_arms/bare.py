"""The same hops by plain redis-py, without seals, windows or records: proposal, votes and commit on two streams."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import redis.asyncio as library

from esper.bench.rounds.lines import given, run, say, told

DECISIONS, VOTES = "bare:decisions", "bare:votes"


async def lead(client: Any, world_size: int) -> None:
    """Proposes, counts, commits; the commit and the next proposal go out together, as ours do."""
    await group(client, VOTES, "coordinator")
    say("ready")
    number = 0
    async for line in told():
        proposed_ns, begun = {}, time.monotonic()
        for at in range(line["rounds"] + 1):
            async with client.pipeline(transaction=True) as pipe:
                if at:
                    pipe.xadd(DECISIONS, {b"m": b"c%d" % number})
                if at < line["rounds"]:
                    number += 1
                    proposed_ns[number] = time.monotonic_ns()
                    pipe.xadd(DECISIONS, {b"m": b"p%d" % number})
                await pipe.execute()
            if at < line["rounds"]:
                await hear_votes(client, world_size)
        say({"proposed_ns": list(proposed_ns.items()), "seconds": time.monotonic() - begun})


async def hear_votes(client: Any, num: int) -> None:
    while num:
        ids = [entry for entry, _ in await new(client, VOTES, "coordinator")]
        num -= len(ids)
        if ids:
            await client.xack(VOTES, "coordinator", *ids)


async def follow(client: Any, writer: Any, name: str) -> None:
    """Votes on each proposal; what it has seen of commits is acknowledged with them."""
    await group(client, DECISIONS, name)
    seen_ns: dict[int, int] = {}
    say("ready")
    task = asyncio.create_task(listen(client, writer, name, seen_ns))
    async for _ in told():
        say([list(seen_ns.items())])
        seen_ns.clear()
    task.cancel()


async def listen(client: Any, writer: Any, name: str, seen_ns: dict[int, int]) -> None:
    while True:
        rows = await new(client, DECISIONS, name)
        for entry_id, fields in rows:
            kind, number = fields[b"m"][:1], int(fields[b"m"][1:])
            if kind == b"c":
                seen_ns[number] = time.monotonic_ns()
                await writer.xack(DECISIONS, name, entry_id)
            else:
                await writer.xadd(VOTES, {b"m": b"%d" % number})


async def group(client: Any, stream: str, name: str) -> None:
    await client.xgroup_create(stream, name, "$", mkstream=True)


async def new(client: Any, stream: str, name: str) -> Any:
    reply = await client.xreadgroup(name, name, {stream: ">"}, count=256, block=500)
    return reply[0][1] if reply else []


async def main(url: str, name: str, world_size: int = 0) -> None:
    async with library.Redis.from_url(url) as client, library.Redis.from_url(url) as writer:
        await (lead(client, world_size) if world_size else follow(client, writer, name))


if __name__ == "__main__":
    run(main(**given()))
