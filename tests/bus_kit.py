"""What the tests of the bus share: filling streams, reading until idle, and a line that loses replies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from esper.bus.connect import Redis
from esper.bus.delivery import Delivery
from esper.bus.embedded import EmbeddedRedis
from esper.bus.inbox import Inbox
from esper.bus.publisher import Publisher


async def put(redis: Redis, stream: str, *bodies: bytes) -> list[str]:
    publisher = Publisher(redis)
    return [await publisher.add(stream, body) for body in bodies]


async def drain(inbox: Inbox) -> list[Delivery]:
    """Everything handed over until the inbox is idle."""
    await inbox.open()
    return [delivery async for batch in inbox.batches(until_idle=True) for delivery in batch]


async def bodies(redis: Redis, stream: str) -> list[bytes]:
    return [fields[b"m"] for _, fields in await redis.execute_command("XRANGE", stream, "-", "+")]


async def num_pending(redis: Redis, stream: str, group: str = "group") -> int:
    summary = await redis.xpending(stream, group)
    return int(summary["pending"])


def reads_ahead(patch: pytest.MonkeyPatch) -> None:
    """Also where the machine stands still: no look at what others left is due meanwhile, and what was read comes."""
    patch.setattr("esper.bus.consumer.RECLAIM_EVERY_MS", 60_000)
    patch.setattr("esper.bus.inbox.LAST_READ_S", 60.0)


def sockets() -> set[str]:
    """Those that this process has open."""
    links = (os.readlink(f"/proc/self/fd/{each.name}") for each in os.scandir("/proc/self/fd") if os.path.lexists(each))
    return {link for link in links if link.startswith("socket:")}


@contextmanager
def own_server(directory: Path) -> Iterator[EmbeddedRedis]:
    """A server for a test that harms it."""
    with EmbeddedRedis(directory / uuid4().hex[:8], appendfsync="always") as server:
        yield server


class LossyLine:
    """Between a client and the server. Passes everything on; loses the reply to the next command that it is told to."""

    def __init__(self, server: Path) -> None:
        self.server, self.num_lost = server, 0
        self.lose: bytes | None = None

    async def on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(str(self.server))
        try:
            while request := await reader.read(1 << 20):
                up_writer.write(request)
                reply = await up_reader.read(1 << 20)
                if self.lose and self.lose in request and not reply.startswith(b"-NOSCRIPT"):
                    self.lose, self.num_lost = None, self.num_lost + 1
                    return
                writer.write(reply)
        finally:
            up_writer.close()
            writer.close()


@asynccontextmanager
async def lossy_line(server_url: str, directory: Path) -> AsyncIterator[tuple[LossyLine, str]]:
    """The line and the URL to reach the server through it."""
    server = urlsplit(server_url)
    line = LossyLine(Path(server.path))
    path = directory / f"{uuid4().hex[:8]}.sock"
    async with await asyncio.start_unix_server(line.on_client, path):
        yield line, f"unix://{path}?{server.query}"
