"""The primary killed and its replica promoted, under load: durable mode loses nothing that it acknowledged, fast mode
tells what it lost, and what comes back is not carried out twice."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from esper.bus.durability import Wanted
from esper.cli.running.ports import free_port
from tests.faults.modes import in_each_mode, judge
from tests.faults.processes import wait_until
from tests.faults.proxy import Proxy
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import scene
from tests.faults.server import HOST, Server

COMMANDER, FOLLOWER = "commander", "follower"
CUT_OFF_S = (0.05, 0.3)
"""How long the replica hears nothing before its primary dies."""


class Pair:
    """Two servers: one leads, the other copies it over a line that can be cut. Clients keep to one address."""

    def __init__(self, directory: Path, binary: Path, wanted: Wanted, stack: ExitStack) -> None:
        self._directory, self._binary, self._stack = directory, binary, stack
        self._min_replicas = 1 if wanted == "durable" else 0
        self._count = 0
        self.primary = self._server()
        self.address = stack.enter_context(Proxy(self.primary.url))
        self.line = stack.enter_context(Proxy(self.primary.url))
        self.replica = self._copying()

    def _server(self) -> Server:
        self._count += 1
        place = self._directory / f"redis-{self._count}"
        options = {
            "min-replicas-to-write": str(self._min_replicas),
            "repl-diskless-sync-delay": "0",
            "repl-timeout": "5",
        }
        return self._stack.enter_context(Server(place, binary=self._binary, options=options, port=free_port()))

    def _copying(self) -> Server:
        """A new server that copies the primary, and has all of it."""
        replica = self._server()
        replica.ask("REPLICAOF", HOST, self.line.port)
        wait_until(lambda: replica.ask("INFO", "replication").get("master_link_status") == "up", "the copy is whole")
        return replica

    def fail_over(self, cut_off_s: float) -> int:
        """Cut the replica off, a while later kill the primary, lead the clients to the replica. When that was done."""
        silenced = self.line.done["silenced_bytes"]
        self.line.fall_silent()
        until = time.monotonic() + cut_off_s
        wait_until(
            lambda: time.monotonic() >= until and self.line.done["silenced_bytes"] > silenced,
            "the replica missed something",
        )
        self.primary.kill()
        self.replica.ask("REPLICAOF", "NO", "ONE")
        assert self.replica.ask("INFO", "replication")["role"] == "master", "it was not promoted"
        self.primary = self.replica
        self.address.switch(self.primary.url)
        self.line.plan.upstream = self.primary.url
        self.line.speak_again()
        return time.monotonic_ns()

    def restore(self) -> None:
        """A new replica in place of the dead primary, where there is none yet."""
        if self.replica is self.primary:
            self.replica = self._copying()


@contextmanager
def pair(directory: Path, binary: Path, wanted: Wanted) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(directory, binary, wanted, stack)


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    return in_each_mode(run_mode, directory, amounts, seed)


def run_mode(
    directory: Path, wanted: Wanted, num_failovers: int, binary: Path, chance: random.Random, result: Result
) -> None:
    with pair(directory, binary, wanted) as servers, scene(directory) as stage:
        stage.follow(FOLLOWER, servers.address.url)
        stage.command(COMMANDER, servers.address.url, wanted=wanted)
        for _ in range(num_failovers):
            servers.restore()
            stage.goes_on(COMMANDER, 20)
            at_ns = servers.fail_over(chance.uniform(*CUT_OFF_S))
            if wanted == "durable":
                servers.restore()  # without a replica it takes no writes
            stage.goes_on(COMMANDER)
            result.sample("resumed_s", (time.monotonic_ns() - at_ns) / 1e9)
            stage.follows(FOLLOWER)
            result.count(f"{wanted}_failovers")
        judge(result, servers.primary, stage, stage.finish(servers.primary), wanted, FOLLOWER)


ROW = Row("failover", run, ci={"durable": 1, "fast": 1}, chunk={"durable": 2, "fast": 2}, num_chunks=10)
