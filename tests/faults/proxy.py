"""A TCP line to a server that can be made slow, cut, silent, or to lose a request or a part of a reply."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.faults.processes import SOON_S

HOST = "127.0.0.1"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time left: close() sends RST in place of FIN
CHUNK_BYTES = 1 << 16


@dataclass(slots=True, eq=False)
class Line:
    """One connection of a client, and the server's end of it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    reply_left: int | None = None  # bytes of reply still passed on before the line is closed

    def reset(self) -> None:
        """RST to both ends."""
        for end in (self.client, self.server):
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.transport.abort()

    def close(self) -> None:
        self.client.close()
        self.server.close()


@dataclass(slots=True)
class Plan:
    """What is done to what passes, from now on. Read by the thread of the lines, set by that of the row."""

    upstream: str
    latency_s: float = 0.0
    jitter_s: float = 0.0
    silent: bool = False  # bytes are taken and never passed on; connections stay open
    drop_requests: list[bytes] = field(default_factory=list)  # the next request that holds these words is lost
    cut_replies: list[tuple[bytes, int]] = field(default_factory=list)  # of the next such request, all but N bytes


class Proxy:
    """Runs in a thread of its own. `done` counts what it really did: faults that no traffic met are not counted."""

    def __init__(self, upstream_url: str, seed: int = 0) -> None:
        self.plan, self.done = Plan(upstream_url), Counter[str]()
        self._random = random.Random(seed)
        self._lines: set[Line] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"redis://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(SOON_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(SOON_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SOON_S)
        self._loop.close()

    # --- what is done to it ----------------------------------------------------------------------------------------

    def reset(self) -> int:
        """Cut every open line with RST; how many there were."""
        return self._call(self._reset)

    def switch(self, upstream_url: str) -> int:
        """Lead to another server from now on: what is open is reset."""
        self.plan.upstream = upstream_url
        return self.reset()

    def delay(self, latency_s: float, jitter_s: float = 0.0) -> None:
        """Hold each chunk back, both ways; order is kept."""
        self.plan.latency_s, self.plan.jitter_s = latency_s, jitter_s

    def fall_silent(self) -> None:
        """Half-open: connections stay and are accepted, and nothing passes."""
        self.plan.silent = True

    def speak_again(self) -> None:
        """Pass on what comes from now on; lines that lost bytes are reset, as they would be after a partition."""
        self.plan.silent = False
        self.reset()

    def drop_request(self, words: bytes) -> None:
        """Lose the next request that holds these words, and close its line."""
        self.plan.drop_requests.append(words)

    def cut_reply(self, words: bytes, after_bytes: int) -> None:
        """Pass on the next request that holds these words, and of its reply so many bytes; then close its line."""
        self.plan.cut_replies.append((words, after_bytes))

    @property
    def num_lines(self) -> int:
        return len(self._lines)

    # --- inside the thread -----------------------------------------------------------------------------------------

    def _call(self, act: Callable[[], int]) -> int:
        async def called() -> int:
            return act()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(SOON_S)

    async def _serve(self) -> None:
        self._server = await asyncio.start_server(self._on_client, sock=self._listening)

    async def _end(self) -> None:
        self._server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # cancelled, streams would complain in 3.11
            for line in set(self._lines):
                line.reset()
            await asyncio.wait(tasks, timeout=0.1)

    def _reset(self) -> int:
        lines, self._lines = self._lines, set()
        for line in lines:
            line.reset()
        self.done["reset"] += len(lines)
        return len(lines)

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await self._connected()
        except OSError:
            self.done["refused"] += 1
            writer.close()
            return
        line = Line(writer, up_writer)
        self._lines.add(line)
        pumps = [asyncio.create_task(self._requests(reader, line)), asyncio.create_task(self._replies(up_reader, line))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._lines.discard(line)
            line.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where = urlsplit(self.plan.upstream)
        if where.scheme == "unix":
            return await asyncio.open_unix_connection(where.path)
        return await asyncio.open_connection(where.hostname, where.port)

    async def _requests(self, reader: asyncio.StreamReader, line: Line) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._hold_back()
            if self.plan.silent:
                self.done["silenced_bytes"] += len(data)
            elif words := next((words for words in self.plan.drop_requests if words in data), None):
                self.plan.drop_requests.remove(words)
                self.done["request_dropped"] += 1
                return
            else:
                self._arm(line, data)
                line.server.write(data)

    def _arm(self, line: Line, data: bytes) -> None:
        if cut := next((cut for cut in self.plan.cut_replies if cut[0] in data), None):
            self.plan.cut_replies.remove(cut)
            line.reply_left = cut[1]

    async def _replies(self, reader: asyncio.StreamReader, line: Line) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._hold_back()
            if self.plan.silent:
                self.done["silenced_bytes"] += len(data)
            elif line.reply_left is None:
                line.client.write(data)
            else:
                passed, lost = data[: line.reply_left], data[line.reply_left :]
                line.client.write(passed)
                line.reply_left -= len(passed)
                if lost:
                    self.done["reply_cut"] += 1
                    self.done["reply_bytes_lost"] += len(lost)
                    return

    async def _hold_back(self) -> None:
        plan = self.plan
        if plan.latency_s or plan.jitter_s:
            self.done["delayed"] += 1
            await asyncio.sleep(plan.latency_s + self._random.random() * plan.jitter_s)
