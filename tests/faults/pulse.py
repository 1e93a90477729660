"""When a server, or the machine that it shares with us, stood still: what is promised in seconds is not of those."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import redis

from tests.faults.serving import Serving

EVERY_S = 0.02
FELT_S = 0.15
"""A beat that comes so much later than the one before tells of a standstill."""


class Pulse:
    """Asks for a PONG all the time, and remembers for how long none came."""

    def __init__(self, server: Serving) -> None:
        self._server, self._stopping = server, threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self.standstills: list[tuple[int, int]] = []

    def served_s(self, from_ns: int, to_ns: int) -> float:
        """How long of a stretch of time the server answered."""
        still = sum(max(0, min(to_ns, end) - max(from_ns, begin)) for begin, end in self.standstills)
        return max(0, to_ns - from_ns - still) / 1e9

    def stood_still(self, for_s: float, since_ns: int) -> bool:
        """Whether none came for so long since then: who waits for a heartbeat counts anew from there."""
        return any(end - max(begin, since_ns) >= for_s * 1e9 for begin, end in self.standstills)

    def _beat(self) -> None:
        with ExitStack() as stack:
            clients, before_ns = self._clients(stack), time.monotonic_ns()
            while not self._stopping.wait(EVERY_S):
                try:
                    for client in clients:
                        client.ping()
                except redis.ConnectionError:  # another server may answer in its place
                    clients = self._clients(stack)
                    continue
                now_ns = time.monotonic_ns()
                if now_ns - before_ns > FELT_S * 1e9:
                    self.standstills.append((before_ns, now_ns))
                before_ns = now_ns

    def _clients(self, stack: ExitStack) -> list[redis.Redis]:
        return [stack.enter_context(redis.Redis.from_url(url)) for url in self._server.urls]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
