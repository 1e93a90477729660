"""A Cluster of three, and a primary with a replica behind Sentinels, as rows ask it of one server."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import redis
from redis.backoff import ConstantBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from esper.bus.embedded import EmbeddedRedis
from tests.faults.processes import SOON_S, state_of, wait_until
from tests.faults.server import single
from tests.faults.serving import Serve, Serving
from tests.many_servers import HOST, SERVICE, Cluster, Watched, a_cluster, ask, has_replica, is_whole, watched_servers

DURABLE = {"appendfsync": "everysec", "min-replicas-to-write": "1", "min-replicas-max-lag": "10"}


class ThreeMasters(Serving):
    """No replicas: who dies starts again on its files. Each in turn is harmed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._turns = cluster, itertools.cycle(cluster.servers)
        self._harmed = cluster.servers[0]
        self.url = cluster.url

    def client(self) -> redis.Redis:
        nodes = [ClusterNode(HOST, port) for port in self._cluster.ports]  # type: ignore[no-untyped-call]
        return cast(redis.Redis, RedisCluster(startup_nodes=nodes, socket_timeout=30.0))

    @property
    def urls(self) -> Sequence[str]:
        return [at(port) for port in self._cluster.ports]

    def restart(self) -> None:
        self._harmed = next(self._turns)
        self._harmed.kill()
        self._harmed.start()
        self.settle()

    def pause(self) -> None:
        self._harmed = next(self._turns)
        stop(process_of(self._harmed))

    def resume(self) -> None:
        go_on(process_of(self._harmed))
        self.settle()

    def settle(self) -> None:
        wait_until(lambda: all(is_whole(port) for port in self._cluster.ports), "the nodes agree", SOON_S)


class Guarded(Serving):
    """The primary is harmed: after a second without it the Sentinels have its replica take over."""

    falls_back = True

    def __init__(self, watched: Watched) -> None:
        self._watched, self._harmed = watched, watched.servers[0]
        self._in_charge = watched.in_charge()
        self.url = watched.url

    def client(self) -> redis.Redis:
        at = [(HOST, port) for port in self._watched.sentinel_ports]
        sentinels: Any = Sentinel(at, socket_timeout=30.0)  # type: ignore[no-untyped-call]
        client: redis.Redis = sentinels.master_for(SERVICE, socket_timeout=30.0, retry=Retry(ConstantBackoff(0.1), 300))
        return client

    @property
    def urls(self) -> Sequence[str]:
        return [at(self._watched.ports[self._watched.in_charge()])]

    def restart(self) -> None:
        self._watched.fail_over()
        self._watched.come_back()
        self.settle()

    def pause(self) -> None:
        self._harmed = self._watched.servers[self._watched.in_charge()]
        stop(process_of(self._harmed))

    def resume(self) -> None:
        go_on(process_of(self._harmed))
        self.settle()

    def settle(self) -> None:
        wait_until(lambda: agree(self._watched), "the Sentinels agree", SOON_S)
        before, self._in_charge = self._in_charge, self._watched.in_charge()
        self.num_failovers += self._in_charge != before


def agree(watched: Watched) -> bool:
    """Whether all Sentinels see one primary, which nobody is about to replace, and the other one follows it."""
    told = [ask(port, "SENTINEL", "MASTER", SERVICE) for port in watched.sentinel_ports]
    facts = [dict(zip(row[::2], row[1::2], strict=True)) for row in told]
    [port, *others] = {int(each["port"]) for each in facts}
    return not others and {each["flags"] for each in facts} == {"master"} and has_replica(port)


def at(port: int) -> str:
    return f"redis://{HOST}:{port}"


def process_of(server: EmbeddedRedis) -> subprocess.Popen[bytes]:
    assert server.process is not None, "it does not run"
    return server.process


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGSTOP; on return it stands still."""
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T", "a server stands still")


def go_on(process: subprocess.Popen[bytes]) -> None:
    """SIGCONT; it did stand still until now."""
    assert state_of(process.pid) == "T", "a server did not stand still any more"
    os.kill(process.pid, signal.SIGCONT)


@contextmanager
def three_masters(directory: Path, options: Mapping[str, str]) -> Iterator[Serving]:
    with a_cluster(directory, None, **options) as cluster:
        yield ThreeMasters(cluster)


@contextmanager
def guarded(directory: Path, options: Mapping[str, str]) -> Iterator[Serving]:
    with watched_servers(directory, None, **{**options, **DURABLE}) as watched:
        yield Guarded(watched)


SINGLE = "single"
KINDS: Mapping[str, Serve] = {SINGLE: single, "cluster": three_masters, "sentinel": guarded}
