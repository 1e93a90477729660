"""Redis as several servers of this machine: a Cluster of three, and a primary with a replica under three Sentinels."""

from __future__ import annotations

import math
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from esper.bus.embedded import EmbeddedRedis, find_server, launched
from esper.cli.running.ports import free_port
from tests.faults.processes import wait_until

HOST = "127.0.0.1"
NUM_SLOTS = 16_384
BUS = 10_000  # a node's bus listens on its port plus this
SERVICE = "primary"
FORMED_S = 60.0
MEETING_S = 10.0  # twice a node's timeout


def free_ports(num: int) -> list[int]:
    """Of which nobody listens on any, nor on the port of a node's bus."""
    found: list[int] = []
    while len(found) < num:
        port = free_port()
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port + BUS))
            found.append(port)
    return found


def on(port: int) -> dict[str, str]:
    return {"port": str(port), "bind": HOST, "protected-mode": "no"}


def ask(port: int, *words: Any) -> Any:
    """What one server answers."""
    with redis.Redis(HOST, port, decode_responses=True, protocol=2, socket_timeout=FORMED_S) as client:
        return client.execute_command(*words)


@dataclass
class Cluster:
    """Three primaries without replicas, and who holds which slots."""

    ports: list[int]
    servers: list[EmbeddedRedis] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Two of the nodes: the third is found by asking."""
        return f"redis+cluster://{HOST}:{self.ports[0]},{HOST}:{self.ports[1]}"

    def ids(self) -> list[str]:
        return [ask(port, "CLUSTER", "MYID") for port in self.ports]

    def holder(self, key: str) -> int:
        """Index of the node that has the slot of a key."""
        slot = ask(self.ports[0], "CLUSTER", "KEYSLOT", key)
        for first, last, node, *_ in ask(self.ports[0], "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return self.ports.index(node[1])
        raise AssertionError(f"nobody has slot {slot}")

    def move(self, key: str, to: int, *, ends: bool = True) -> None:
        """Give the slot of a key to another node, with all its keys; `ends` False leaves it half-way, keys moved."""
        slot, at = ask(self.ports[0], "CLUSTER", "KEYSLOT", key), self.holder(key)
        ids = self.ids()
        ask(self.ports[to], "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[at])
        ask(self.ports[at], "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
        while names := ask(self.ports[at], "CLUSTER", "GETKEYSINSLOT", slot, 100):
            ask(self.ports[at], "MIGRATE", HOST, self.ports[to], "", 0, 5000, "KEYS", *names)
        if ends:
            self.settle(slot, to)

    def settle(self, slot: int, to: int) -> None:
        for port in (self.ports[to], *self.ports):
            ask(port, "CLUSTER", "SETSLOT", slot, "NODE", self.ids()[to])


PART = {"cluster-enabled": "yes", "cluster-node-timeout": "5000", "cluster-require-full-coverage": "no"}


@contextmanager
def a_replica(cluster: Cluster, of: int, directory: Path) -> Iterator[int]:
    """A fourth node, which takes over from that one where it dies; its port."""
    [port] = free_ports(1)
    with EmbeddedRedis(directory, binary=cluster.servers[of].binary, options={**on(port), **PART}):
        primary = ask(cluster.ports[of], "CLUSTER", "MYID")
        introduce(port, cluster.ports[of])
        wait_until(lambda: primary in str(ask(port, "CLUSTER", "NODES")) and is_whole(port), "the fourth is known")
        ask(port, "CLUSTER", "REPLICATE", primary)
        wait_until(lambda: has_replica(cluster.ports[of]), "it follows")
        others = [other for at, other in enumerate(cluster.ports) if at != of]
        wait_until(lambda: all(is_followed(other, primary) for other in others), "the others know that")
        yield port


def introduce(port: int, to: int) -> None:
    """Let two nodes know each other. Where a machine stalls for a node's timeout the handshake ends, for good."""
    asked_s = -math.inf

    def are_acquainted() -> bool:
        nonlocal asked_s
        if all(
            ask(one, "CLUSTER", "MYID") in ask(other, "CLUSTER", "NODES") for one, other in ((port, to), (to, port))
        ):
            return True
        if time.monotonic() - asked_s > MEETING_S:
            ask(port, "CLUSTER", "MEET", HOST, to)
            asked_s = time.monotonic()
        return False

    wait_until(are_acquainted, "two nodes know each other")


def is_followed(port: int, primary: str) -> bool:
    return bool(ask(port, "CLUSTER", "REPLICAS", primary))


@contextmanager
def a_cluster(directory: Path, binary: Path | None = None, **options: str) -> Iterator[Cluster]:
    """Started, joined and in agreement; ended with the block. `options` are settings of each node."""
    cluster = Cluster(free_ports(3))
    with ExitStack() as running:
        for number, port in enumerate(cluster.ports):
            server = EmbeddedRedis(directory / str(number), binary=binary, options={**on(port), **PART, **options})
            cluster.servers.append(running.enter_context(server))
        for number, port in enumerate(cluster.ports):
            first, last = (NUM_SLOTS * each // 3 for each in (number, number + 1))
            ask(port, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            ask(port, "CLUSTER", "ADDSLOTS", *range(first, last))
        for port in cluster.ports[1:]:
            introduce(port, cluster.ports[0])
        wait_until(lambda: all(is_whole(port) for port in cluster.ports), "the nodes agree")
        yield cluster


def is_whole(port: int) -> bool:
    held = sum(last - first + 1 for first, last, *_ in ask(port, "CLUSTER", "SLOTS"))
    return held == NUM_SLOTS and "cluster_state:ok" in str(ask(port, "CLUSTER", "INFO"))


@dataclass
class Watched:
    """A primary with one replica, and the Sentinels that watch them."""

    servers: list[EmbeddedRedis]
    ports: list[int]
    sentinel_ports: list[int]
    processes: list[subprocess.Popen[bytes]]

    @property
    def url(self) -> str:
        nodes = ",".join(f"{HOST}:{port}" for port in self.sentinel_ports)
        return f"redis+sentinel://{nodes}/{SERVICE}"

    def in_charge(self) -> int:
        """Index of the server that the first Sentinel names."""
        _, port = ask(self.sentinel_ports[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return self.ports.index(int(port))

    def fail_over(self) -> None:
        """Kill who is in charge; the other one is, once this returns."""
        before = self.in_charge()
        self.servers[before].kill()
        wait_until(lambda: self.in_charge() != before, "another is in charge")

    def come_back(self) -> None:
        """The killed one starts, as a replica of the one in charge."""
        now = self.in_charge()
        self.servers[1 - now].start()
        ask(self.ports[1 - now], "REPLICAOF", HOST, self.ports[now])
        wait_until(lambda: has_replica(self.ports[now]), "it follows")


def has_replica(port: int) -> bool:
    told = ask(port, "INFO", "replication")
    return bool(told["connected_slaves"]) and told["slave0"]["state"] == "online"


@contextmanager
def watched_servers(directory: Path, binary: Path | None = None, **options: str) -> Iterator[Watched]:
    """All of them, in agreement; `options` are settings of primary and replica."""
    ports = free_ports(5)
    with ExitStack() as running:
        servers = [
            EmbeddedRedis(directory / str(number), binary=binary, options={**on(port), **options})
            for number, port in enumerate(ports[:2])
        ]
        for server in servers:
            running.enter_context(server)
        ask(ports[1], "REPLICAOF", HOST, ports[0])
        wait_until(lambda: has_replica(ports[0]), "the replica follows")
        processes = [started(directory, port, ports[0], binary) for port in ports[2:]]
        running.callback(ended, processes)
        watched = Watched(servers, ports[:2], ports[2:], processes)
        wait_until(lambda: all(knows_all(port) for port in watched.sentinel_ports), "the Sentinels know all")
        yield watched


def started(directory: Path, port: int, primary: int, binary: Path | None) -> subprocess.Popen[bytes]:
    settings = directory / f"sentinel-{port}.conf"
    lines = [
        *(f"{name} {value}" for name, value in on(port).items()),
        f"dir {directory}",
        f"sentinel monitor {SERVICE} {HOST} {primary} 2",
        f"sentinel down-after-milliseconds {SERVICE} 1000",
        f"sentinel failover-timeout {SERVICE} 6000",
    ]
    settings.write_text("\n".join(lines) + "\n")
    return launched([str(binary or find_server()), str(settings), "--sentinel"])


def ended(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def knows_all(port: int) -> bool:
    try:
        told = ask(port, "INFO", "sentinel")["master0"]
    except redis.ConnectionError:
        return False
    return (told["status"], int(told["slaves"]), int(told["sentinels"])) == ("ok", 1, 3)
