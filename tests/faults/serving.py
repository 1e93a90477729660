"""What rows ask of the Redis that they harm: one server, or several that are one to its clients."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import redis


class Serving(ABC):
    """Redis at one address. One server is harmed at a time, and all is whole again once that is over."""

    url: str
    falls_back = False
    """Whether a kill takes what no replica has: publishers wait for one, and what Redis holds in the end counts."""

    num_failovers = 0

    @abstractmethod
    def client(self) -> redis.Redis:
        """A client that finds each key. The caller closes it."""

    @property
    @abstractmethod
    def urls(self) -> Sequence[str]:
        """Of each server that answers for keys now, by itself."""

    @abstractmethod
    def restart(self) -> object:
        """Kill one that answers; return once all keys are answered for."""

    @abstractmethod
    def pause(self) -> None:
        """SIGSTOP to one that answers."""

    @abstractmethod
    def resume(self) -> None:
        """SIGCONT to that one."""

    @abstractmethod
    def settle(self) -> None:
        """Return once all keys are answered for, by whomever."""

    def is_through(self, stream: str, group: str) -> bool:
        """Whether a group has nothing pending and nothing unread; False where there is no entry."""
        with self.client() as client:
            newest: Any = client.xrevrange(stream, count=1)
            groups: Any = client.xinfo_groups(stream)
        at = {row["name"].decode(): (row["pending"], row["last-delivered-id"]) for row in groups}
        return bool(newest) and at.get(group) == (0, newest[0][0])

    def pause_clients(self, lasts_s: float) -> None:
        """CLIENT PAUSE on each that answers; return when it is over."""
        began = time.monotonic()
        with ExitStack() as stack:
            servers = [stack.enter_context(redis.Redis.from_url(url, socket_timeout=60.0)) for url in self.urls]
            for server in servers:
                server.client_pause(int(lasts_s * 1000), all=True)
            for server in servers:
                server.ping()  # is answered when it is over
        self.settle()
        took_s = time.monotonic() - began
        assert took_s >= lasts_s * 0.9, f"the server paused for {took_s:.2f} s only"


Serve: TypeAlias = Callable[[Path, Mapping[str, str]], AbstractContextManager[Serving]]
