"""Everything that a run has beside its trainer, in processes of its own, and the messages that arrive meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esper.bus import connect, names
from esper.bus.embedded import EmbeddedRedis
from esper.leyline.keyring import MasterKeyring
from esper.leyline.kinds import Role

RUN, REGION, WORKER = "bench-0a1b2c3d", "r0", "worker-0"
SERVERS = {"coordinator": Role.COORDINATOR, "regional": Role.REGIONAL, "global_": Role.GLOBAL}
SETTLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One run of one rank. `environment` is what attach() gives the runtime beside the trainer."""

    directory: Path
    url: str
    load: subprocess.Popen[bytes]

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.directory, self.url, WORKER, Role.WORKER)

    def arrived_per_s(self) -> tuple[int, float]:
        """Messages of the load that Redis has acknowledged, and how many that is a second."""
        lines = (self.directory / "load.out").read_text().splitlines()
        sent, seconds = lines[-1].split() if lines else ("0", "1")
        return int(sent), int(sent) / float(seconds)

    def behind_ms(self) -> float:
        """How much older the newest message is that the aggregator has taken than the newest there is."""
        return asyncio.run(_behind_ms(self.url))


@contextmanager
def surroundings(per_s: float) -> Iterator[Surroundings]:
    """Redis, coordinator and both tiers, and `per_s` sealed messages a second that arrive in the run's region."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        url = stack.enter_context(EmbeddedRedis(directory / "redis")).url
        master = MasterKeyring.new(time.time_ns() - 1_000_000_000)
        for role in (*SERVERS.values(), Role.WORKER):
            master.derive(RUN, [role]).save(directory / f"{role}.json")
        for name, role in SERVERS.items():
            command = ["-P", "-m", f"esper.workers.{name}"]
            stack.enter_context(process(command, environment(directory, url, name, role), directory, name))
        keyring = str(directory / f"{Role.WORKER}.json")
        command = ["-P", "-m", "esper.bench.beside.packets", url, keyring, REGION, str(per_s)]
        load = stack.enter_context(process(command, {}, directory, "load"))
        time.sleep(SETTLE_S)
        yield Surroundings(directory, url, load)


def environment(directory: Path, url: str, name: str, role: Role) -> dict[str, str]:
    common = {"RUN": RUN, "REDIS_URL": url, "KEYRING": str(directory / f"{role}.json"), "NAME": name}
    return {f"ESPER_{key}": value for key, value in {**common, "REGION": REGION, "REGIONS": REGION}.items()}


@contextmanager
def process(
    arguments: list[str], added: Mapping[str, str], directory: Path, name: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Of this interpreter; ended with the block. What it says lies in the directory."""
    with (directory / f"{name}.out").open("wb") as out, (directory / f"{name}.log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, *arguments], env={**os.environ, **added}, stdout=out, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        yield started
    finally:
        started.terminate()
        started.wait(20)


async def _behind_ms(url: str) -> float:
    async with connect.writer(url) as redis:
        stream = names.region_key(RUN, REGION, "telemetry")
        facts: Any = await redis.execute_command("XINFO", "STREAM", stream)
        groups: Any = await redis.execute_command("XINFO", "GROUPS", stream)
    newest, taken = _field(facts, "last-generated-id"), _field(groups[0], "last-delivered-id")
    return float(newest.partition("-")[0]) - float(taken.partition("-")[0])


def _field(reply: Any, name: str) -> str:
    """Of an XINFO reply, whichever form this client gives it."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    found = {(key.decode() if isinstance(key, bytes) else key): value for key, value in pairs}[name]
    return str(found.decode() if isinstance(found, bytes) else found)
