"""Everything that a run has beside its trainer, in processes of its own, and the messages that arrive meanwhile."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esper.bus import connect, names
from esper.bus.embedded import EmbeddedRedis
from esper.errors import RuntimeLostError
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role

RUN, REGION, WORKER = "bench-0a1b2c3d", "r0", "worker-0"
SERVERS = {"coordinator": Role.COORDINATOR, "regional": Role.REGIONAL, "global_": Role.GLOBAL}
SETTLE_S, PATIENCE_S, LOOK_EVERY_S = 2.0, 90.0, 0.1


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One run of one rank. `environment` is what attach() gives the runtime beside the trainer."""

    directory: Path
    url: str
    load: subprocess.Popen[bytes]

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.directory, self.url, WORKER, Role.WORKER)

    def settle(self) -> None:
        """Wait until the load arrives and is folded, and 2 s more. RuntimeLostError where that does not come."""
        ends = time.monotonic() + PATIENCE_S
        while not self.is_at_work:
            if self.load.poll() is not None or time.monotonic() >= ends:
                raise RuntimeLostError(f"no load was folded within {PATIENCE_S:g} s of its start")
            time.sleep(LOOK_EVERY_S)
        time.sleep(SETTLE_S)

    @property
    def is_at_work(self) -> bool:
        """Whether some of the load was sent and some was taken."""
        return bool(self.arrived_per_s()[0]) and self.behind_ms() < math.inf

    def arrived_per_s(self) -> tuple[int, float]:
        """Messages of the load that Redis has acknowledged, and how many that is a second."""
        lines = (self.directory / "load.out").read_text().splitlines()
        sent, seconds = lines[-1].split() if lines else ("0", "1")
        return int(sent), int(sent) / float(seconds)

    def behind_ms(self) -> float:
        """How much older the newest message is that the aggregator has taken than the newest there is; infinite where
        it has taken none."""
        with ThreadPoolExecutor(1) as aside:  # whoever asks may be in a loop of its own
            return aside.submit(asyncio.run, _behind_ms(self.url)).result()


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
        around = Surroundings(directory, url, load)
        around.settle()
        yield around


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
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


async def _behind_ms(url: str) -> float:
    async with connect.writer(url) as redis:
        stream = names.region_key(RUN, REGION, "telemetry")
        facts: Any = await redis.execute_command("XINFO", "STREAM", stream)
        groups: Any = await redis.execute_command("XINFO", "GROUPS", stream)
    newest = _time_ms(_field(facts, "last-generated-id"))
    taken = max((_time_ms(_field(group, "last-delivered-id")) for group in groups), default=0.0)
    return newest - taken if taken else math.inf


def _time_ms(entry_id: str) -> float:
    return float(entry_id.partition("-")[0])


def _field(reply: Any, name: str) -> str:
    """Of an XINFO reply, whichever form this client gives it."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    found = {(key.decode() if isinstance(key, bytes) else key): value for key, value in pairs}[name]
    return str(found.decode() if isinstance(found, bytes) else found)
