"""A run of two ranks that torchrun starts, on one node or two, with a coordinator and aggregators as processes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from esper.bus import connect, runs
from esper.bus.tail import last
from esper.client import Controller, Receipt
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener
from esper.runtime.watching.liveness import Workers
from tests.faults.processes import Running
from tests.many_servers import HOST, free_ports
from tests.system.processes import PATIENCE_S, Start, buried, processes, started, stop

REGIONS = ("r0", "r1")
SERVERS = {
    "coordinator": ("coordinator", Role.COORDINATOR, {"SNAPSHOT_EVERY": "100"}),
    "regional-0": ("regional", Role.REGIONAL, {"REGION": "r0"}),
    "regional-1": ("regional", Role.REGIONAL, {"REGION": "r1"}),
    "global": ("global_", Role.GLOBAL, {"REGIONS": ",".join(REGIONS)}),
}
ENDED = re.compile(r"rank (\d) ended at step (\d+) with (\w+)")
TORCHRUN = "torch.distributed.run"
ALWAYS = ("--max-restarts=2", "--rdzv-backend=c10d")
PROCESS = {
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    # Else ranks that are started again meet in the store of those before them, and read where these listened.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


class Launched:
    """The processes of one run, on whatever Redis the URL names. `name` is all that torchrun is told of it.

    A node is a torchrun of its own, with a disk of its own; two of them meet at one address. `start` runs the servers,
    and `launch` each torchrun.
    """

    servers: Sequence[str] = (*SERVERS,)
    script, num_ranks = "esper.examples.torchrun_digits", 2

    def __init__(
        self,
        url: str,
        run_id: str,
        directory: Path,
        name: str,
        *,
        num_nodes: int = 1,
        start: Start = started,
        launch: Start = started,
        arguments: Sequence[str] = (),
        **settings: str,
    ) -> None:
        self.url, self.run_id, self.directory = url, run_id, directory
        self.master = MasterKeyring.new(time.time_ns())
        self.stop_file = directory / "stop"
        self.started: dict[str, Running] = {}
        self._keyring(Role.CONTROLLER, Role.OPTIMIZER)
        for each in self.servers:
            module, role, told = SERVERS[each]
            settled = environment({**self._common(role), "RUN": run_id, "NAME": each, **told})
            self.started[each] = start(f"esper.workers.{module}", self._log(each), settled)
        common = {**self._common(Role.WORKER), "REGIONS": ",".join(REGIONS)}
        trains = {**common, "STOP_FILE": str(self.stop_file), **settings}
        meeting = (f"--rdzv-endpoint={HOST}:{free_ports(1)[0]}", f"--local-addr={HOST}", f"--rdzv-id={name}")
        size = (f"--nnodes={num_nodes}", f"--nproc-per-node={self.num_ranks // num_nodes}")
        self.nodes = [f"torchrun-{number}" for number in range(num_nodes)]
        for node in self.nodes:
            command = (*ALWAYS, *size, *meeting, "-m", self.script, *arguments)
            told = environment({**trains, "CHECKPOINTS": str(directory / f"kept-{node}")})
            self.started[node] = launch(TORCHRUN, self._log(node), {**told, **PROCESS}, *command)

    def controller(self) -> AbstractAsyncContextManager[Controller]:
        """Whoever steers it."""
        keyring = self.directory / f"{Role.CONTROLLER}.json"
        return Controller.connect(self.run_id, redis_url=self.url, keyring=keyring)

    def rank(self, number: int) -> int:
        """The process that is this rank now."""
        told = {pid: words for pid, words in processes(self.directory).items() if f" RANK={number} " in words}
        [pid] = [pid for pid, words in told.items() if self.script in words]
        return pid

    async def messages(self, key: str) -> list[Any]:
        """Every message on a stream, opened."""
        opener = Opener(self.master.derive(self.run_id, [Role.OBSERVER]), guard=None, accept=list(Domain))
        async with connect.writer(self.url) as redis:
            entries = await last(redis, key, 100_000)
        return [opener.open(sealed, entry_id, int(entry_id.split("-")[0])).message for entry_id, sealed in entries]

    def said(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")

    def said_by_ranks(self) -> str:
        return "".join(map(self.said, self.nodes))

    def ended(self, timeout_s: float = PATIENCE_S) -> dict[int, tuple[int, str]]:
        """Ask the ranks to end; by rank, the step that it had taken and the digest of its parameters."""
        self.stop_file.touch()
        for node in self.nodes:
            assert self.started[node].wait(timeout_s) == 0, self.said(node)[-4000:]
        return {int(rank): (int(step), digest) for rank, step, digest in ENDED.findall(self.said_by_ranks())}

    def close(self) -> None:
        for process in reversed(self.started.values()):
            process.terminate()
        try:
            buried(*self.started.values())
        finally:
            for pid in processes(self.directory):
                if pid != os.getpid():
                    stop(pid)

    def _keyring(self, *roles: Role) -> Path:
        path = self.directory / f"{roles[0]}.json"
        self.master.derive(self.run_id, list(roles)).save(path)
        return path

    def _common(self, role: Role) -> dict[str, str]:
        return {"REDIS_URL": self.url, "KEYRING": str(self._keyring(role))}

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


def gone_past(killed: Workers) -> Callable[[Workers], bool]:
    """Whether the processes after these are heard, each past the steps of all of these.

    Heartbeats of those that were killed, already on their way, may be past them too.
    """
    before = max(beat.step for beat in killed.values())
    old = {beat.incarnation for beat in killed.values()}
    return lambda workers: all(beat.incarnation not in old and beat.step > before for beat in workers.values())


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """What a process is told of these."""
    return {f"ESPER_{key}": value for key, value in settings.items()}


class Coordinated(Launched):
    """Without the tiers, of which a test asks nothing."""

    servers = ("coordinator",)


async def listed(url: str, name: str, run_id: str) -> None:
    """Have a run outside be found by its name."""
    async with connect.writer(url) as redis:
        await runs.announce_outside(redis, name, run_id)


async def step_of(receipt: Receipt) -> int:
    """The one before which every rank carried it out."""
    applied = await receipt.applied()
    assert [each.worker for each in applied] == ["worker-0", "worker-1"]
    [step] = {each.step for each in applied}
    return step
