"""Two coordinators and some ranks on a real server, each started again with the next point to die at."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from esper.bus import names
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener
from tests.faults.check import exactly_once
from tests.faults.history import Record, records
from tests.faults.nursery import Cradle, nursed
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.pulse import Pulse
from tests.faults.row import Result
from tests.faults.server import UNKEPT, single
from tests.faults.serving import Serve, Serving

RUN, COMMANDER = "barriers-0a1b2c3d", "commander"
LEASE_S = 1.0
DEADLINE_S = 5.0 + LEASE_S + 2.0
"""A worker is given up 5 s after its last heartbeat, a leader after its lease; two for those that start anew."""
STANDSTILL_S = 1.0
STEP_S, EPOCH_STEPS = 0.004, 20


class Council:
    """Processes by name. Knows nothing of which of them are to die."""

    alone = False
    """Whether its workers are in no process group."""

    def __init__(self, directory: Path, server: Serving, nursery: Cradle, stack: ExitStack, world_size: int) -> None:
        self.directory, self.server, self.world_size = directory, server, world_size
        self._pulse = stack.enter_context(Pulse(server))
        self._nursery, self._stack, self._numbers = nursery, stack, itertools.count()
        master = MasterKeyring.new(time.time_ns() - 1_000_000_000)
        for role in (Role.COORDINATOR, Role.WORKER, Role.CONTROLLER, Role.OBSERVER):
            master.derive(RUN, [role]).save(directory / f"{role}.json")

    def lead(self, point: str = "", after: int = 0, *, stops: bool = False) -> Child:
        """One more coordinator, which stands by while another leads."""
        name = f"coordinator-{next(self._numbers)}"
        told = {"lease_s": LEASE_S, "point": point, "after": after, "stops": stops}
        return self._start("leader", name, told)

    def train(self, rank: int, point: str = "", after: int = 0, *, step: int = 1) -> Child:
        """A rank, which begins with this step."""
        told = {
            "rank": 0 if self.alone else rank,
            "world_size": 1 if self.alone else self.world_size,
            "step": step,
            "step_s": STEP_S,
            "epoch_steps": EPOCH_STEPS,
            "point": point,
            "after": after,
        }
        return self._start("rank", f"worker-{rank}", told)

    def command(self, per_s: float) -> Child:
        """A controller, which publishes so many orders a second that each rank can carry out."""
        return self._start("commander", COMMANDER, {"per_s": per_s, "rates": True})

    def expect_given_up(self, result: Result, who: str, holds: Callable[[], bool]) -> None:
        """Wait until somebody who stands still is given up: in time, where the machine does not too."""
        since_ns = time.monotonic_ns()
        seconds = wait_until(holds, f"{who} is given up")
        result.sample("evicted_s", seconds)
        in_time = seconds <= DEADLINE_S or self._pulse.stood_still(STANDSTILL_S, since_ns)
        result.expect_soon(in_time, f"{who} was waited for for {seconds:.1f} s")

    def close_orders(self, commander: Child, result: Result) -> None:
        """The controller ends; each order that was acknowledged is answered once: it is accepted."""
        commander.terminate(SOON_S)
        told = records(self.directory / "history", COMMANDER)
        acked = [record["entry_id"] for record in told if record["what"] == "acked"]
        wait_until(lambda: {*acked} <= {each.entry_id for each in self._answers()}, "every order is answered", SOON_S)
        answers = self._answers()
        refused = [each for each in answers if each.status == pb.ReceiptStatus.RECEIPT_REJECTED]
        result.count("commands", len(acked))
        for violation in exactly_once(self._orders(), acked, (each.entry_id for each in answers)):
            result.expect(False, f"orders: {violation}")
        for each in refused:
            result.expect(False, f"order {each.entry_id} was refused: {each.detail}")

    def _orders(self) -> list[str]:
        return [at.decode() for at, _ in self._entries("commands")]

    def _answers(self) -> list[pb.CommandReceipt]:
        """What coordinators have said of orders: accepted or refused."""
        opener = Opener(RoleKeyring.load(self.directory / f"{Role.OBSERVER}.json"), guard=None, accept=[Domain.RECEIPT])
        entries = self._entries("receipts")
        told = [opener.open(fields[b"m"], at.decode(), int(at.partition(b"-")[0])).message for at, fields in entries]
        said = pb.ReceiptStatus.RECEIPT_ACCEPTED, pb.ReceiptStatus.RECEIPT_REJECTED
        return [each for each in told if isinstance(each, pb.CommandReceipt) and each.status in said]

    def _entries(self, stream: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        with self.server.client() as client:
            entries: Any = client.xrange(names.key(RUN, stream))
        return list(entries)

    def history(self) -> list[Record]:
        """All that ranks wrote down, of one process after the other."""
        return list(records(self.directory / "history", "worker"))

    def lives(self) -> list[list[Record]]:
        """The same, of each process by itself."""
        lives: dict[int, list[Record]] = defaultdict(list)
        for record in self.history():
            lives[record["incarnation"]].append(record)
        return list(lives.values())

    def _start(self, role: str, name: str, told: dict[str, object]) -> Child:
        common = {"directory": str(self.directory), "url": self.server.url, "run": RUN, "name": name}
        log = self.directory / "logs" / f"{name}.log"
        child = self._nursery.role(f"tests.faults.roles.{role}", {**common, **told}, log)
        return self._stack.enter_context(child)


@contextmanager
def council(directory: Path, world_size: int, serve: Serve = single) -> Iterator[Council]:
    """Everything that is started ends with the block."""
    modules = [f"tests.faults.roles.{role}" for role in ("leader", "rank", "commander")]
    with serve(directory / "redis", UNKEPT) as server, nursed(directory, modules) as nursery, ExitStack() as stack:
        yield Council(directory, server, nursery, stack, world_size)
