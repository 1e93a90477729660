"""A real redis-server that is killed, paused and started again on the files that it has left."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import redis

from esper.bus.embedded import LONGEST_SOCKET_PATH, find_server
from esper.cli.running.ports import free_port
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.serving import Serving

HOST = "127.0.0.1"
OPTIONS = {
    "logfile": "redis.log",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "maxmemory-policy": "noeviction",
}

UNKEPT = {"appendonly": "no"}  # for a server that lives through it all: the disk has no say in what is timed


class Server(Child, Serving):
    """One server in one directory, on a unix socket there or, with `port`, on TCP. Options win over the usual ones."""

    def __init__(
        self,
        directory: Path,
        *,
        binary: Path | None = None,
        options: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(directory / "redis.log")
        self.directory, self.port = directory.absolute(), port
        self.binary = binary or find_server()
        self.run_id = ""  # of the run under way, else of the last one
        self.options = {**OPTIONS, **(options or {})}
        self.socket = self.directory / "redis.sock"
        self.url = f"unix://{self.socket}" if port is None else f"redis://{HOST}:{port}"
        assert port is not None or len(bytes(self.socket)) <= LONGEST_SOCKET_PATH, f"too long: {self.socket}"

    def command(self) -> Sequence[str]:
        where = {"port": "0", "unixsocket": str(self.socket), "unixsocketperm": "700"}
        if self.port is not None:
            where = {"port": str(self.port), "bind": HOST}
        given = {**where, "dir": str(self.directory), **self.options}
        return [str(self.binary), *(part for name, value in given.items() for part in (f"--{name}", value))]

    def start(self) -> Self:
        """Return once it answers; what an earlier server of this directory stored is there again."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        assert not self.answers(), f"another server already listens on {self.url}"
        super().start()
        wait_until(lambda: self.answers() or not self.alive, f"{self.url} answers", 60.0)
        assert self.alive, f"{self.url} did not start: {self.last_words()}"
        self.run_id = run_id(self)
        return self

    def restart(self) -> str:
        """Kill it if it runs, start it on what it left; the new run's id, which is another one."""
        before = self.run_id
        if self.alive:
            self.kill()
        self.start()
        assert self.run_id != before, f"{self.url} is still run {before}"
        return self.run_id

    def settle(self) -> None:
        """A single one does as soon as it answers."""

    def stop(self) -> None:
        """End it in order: nothing acknowledged is lost."""
        self.terminate(SOON_S)

    def ask(self, *words: Any) -> Any:
        """One command on a connection of its own, raw bytes back."""
        with self.client() as client:
            return client.execute_command(*words)

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, socket_timeout=30.0)

    @property
    def urls(self) -> Sequence[str]:
        return [self.url]

    def answers(self) -> bool:
        """Whether a server that has finished loading answers PING."""
        family = socket.AF_UNIX if self.port is None else socket.AF_INET
        with socket.socket(family) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(str(self.socket) if self.port is None else (HOST, self.port))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
            except OSError:
                return False


def single(directory: Path, options: Mapping[str, str]) -> Server:
    """What rows are run on, where they are told nothing else."""
    return Server(directory, options=options)


@contextmanager
def replicated(place: Path) -> Iterator[tuple[Server, Server]]:
    """A primary that refuses writes without a replica, and that replica, in step."""
    options = {"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}
    with ExitStack() as stack:
        primary = stack.enter_context(Server(place / "p", port=free_port(), options=options))
        replica = stack.enter_context(Server(place / "r", port=free_port()))
        primary.ask("CONFIG", "SET", "min-replicas-to-write", "1")
        replica.ask("REPLICAOF", HOST, primary.port)
        wait_until(lambda: primary.ask("INFO", "replication").get("min_slaves_good_slaves") == 1, "in step", 20.0)
        yield primary, replica


def run_id(server: Server) -> str:
    """Which run of the server this is: 40 hex digits, another at each start."""
    return str(server.ask("INFO", "server")["run_id"])
