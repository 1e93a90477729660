"""What the tests of the bus share: filling streams, reading until idle, and a line that loses replies."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from esper.bus.connect import Redis
from esper.bus.embedded import EmbeddedRedis
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.publisher import Publisher

PIECE = 1 << 20
DEADLINE_S = 120.0
"""Only a hang takes as long."""


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


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Look, without rest, until it holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not await reached():
            await asyncio.sleep(0)


def reads_ahead(patch: pytest.MonkeyPatch) -> None:
    """Also where the machine stands still: no look at what others left is due meanwhile, and what was read comes."""
    patch.setattr("esper.bus.group.consumer.RECLAIM_EVERY_MS", 60_000)
    patch.setattr("esper.bus.group.inbox.LAST_READ_S", 60.0)


def sockets(pid: int | str = "self") -> set[str]:
    """Those that a process has open, by inode."""
    links = []
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            links.append(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return {link for link in links if link.startswith("socket:")}


@contextmanager
def own_server(directory: Path) -> Iterator[EmbeddedRedis]:
    """A server for a test that harms it."""
    with EmbeddedRedis(directory / uuid4().hex[:8], appendfsync="always") as server:
        yield server


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process's grows while the block lasts: each write fails as on a full disk."""
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))


def fill_disk(server: EmbeddedRedis) -> None:
    """No file of the server's grows from now on, and none is begun: each write fails as on a full disk."""
    resource.prlimit(pid_of(server), resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def free_disk(server: EmbeddedRedis) -> None:
    """There is room again."""
    resource.prlimit(pid_of(server), resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def pid_of(server: EmbeddedRedis) -> int:
    assert server.process is not None
    return server.process.pid


class LossyLine:
    """Between a client and the server. Passes everything on; loses the reply to the next command that it is told to."""

    def __init__(self, server: Path) -> None:
        self.server, self.num_lost = server, 0
        self.lose: bytes | None = None
        self._is_asked = False
        self.calls: list[asyncio.Task[Any]] = []

    async def on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += filter(None, [asyncio.current_task()])
        up_reader, up_writer = await asyncio.open_unix_connection(str(self.server))
        async with asyncio.TaskGroup() as both:
            both.create_task(self._ask(reader, up_writer))
            both.create_task(self._answer(up_reader, writer))
        await asyncio.gather(writer.wait_closed(), up_writer.wait_closed())

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the client hangs up. A command may come in several pieces, and so may its name."""
        begun = b""
        while piece := await reader.read(PIECE):
            said, name = begun + piece, self.lose or b""
            self._is_asked |= bool(name) and name in said
            begun = said[max(0, len(said) - len(name) + 1) :]
            writer.write(piece)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the server hangs up, or a reply is lost: its first line tells one that comes of no effect."""
        while reply := await reader.read(PIECE):
            if self._is_asked and b"\n" not in reply:
                reply += await reader.readline()
            if self._is_asked and not reply.startswith(b"-NOSCRIPT"):
                self.lose, self._is_asked, self.num_lost = None, False, self.num_lost + 1
                break
            writer.write(reply)
        writer.close()


@asynccontextmanager
async def lossy_line(server_url: str, directory: Path) -> AsyncIterator[tuple[LossyLine, str]]:
    """The line and the URL to reach the server through it."""
    server = urlsplit(server_url)
    line = LossyLine(Path(server.path))
    path = directory / f"{uuid4().hex[:8]}.sock"
    async with await asyncio.start_unix_server(line.on_client, path):
        yield line, f"unix://{path}?{server.query}"
        await asyncio.gather(*line.calls)


@contextmanager
def standing_still(server: EmbeddedRedis) -> Iterator[None]:
    """It takes what it is sent, and answers nothing."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)
