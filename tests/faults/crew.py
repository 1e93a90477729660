"""Publishers, a group of workers, both tiers and a witness on one server, and what a row does with them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis

from esper.bus import names
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener
from tests.faults.accounts import events
from tests.faults.check import judge
from tests.faults.history import Record
from tests.faults.nursery import nursed
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.roles.witness import of_aggregate, of_receipt
from tests.faults.row import Result
from tests.faults.scene import RUN, Tail
from tests.faults.serving import Serving

REGION = "r0"
COMMANDS, RECEIPTS, DEAD, TOTAL = (names.key(RUN, name) for name in ("commands", "receipts", "dead", "global"))
TELEMETRY, REGIONAL = (names.region_key(RUN, REGION, name) for name in ("telemetry", "regional"))
GROUP = "workers"
RECLAIM_MS = 500
TIERS = {"regional": Role.REGIONAL, "global_": Role.GLOBAL}
ROLES = ("publisher", "metrics", "worker", "witness", "aggregator", "reader")
MODULES = [f"tests.faults.roles.{role}" for role in ROLES] + [f"esper.workers.{tier}" for tier in TIERS]


class Crew:
    """Processes by name. One that was killed is followed by another incarnation with a name of its own."""

    def __init__(self, directory: Path, server: Serving, stack: ExitStack) -> None:
        self.directory, self.server, self._stack = directory, server, stack
        self.history = directory / "history"
        self.on: dict[str, Child] = {}
        self._incarnations = 0
        self._witnessed = Tail(self.history, "witness")
        self._published: dict[str, Tail] = {}
        master = MasterKeyring.new(time.time_ns())
        for role in (Role.CONTROLLER, Role.WORKER, Role.OBSERVER, *TIERS.values()):
            master.derive(RUN, [role]).save(directory / f"{role}.json")
        self.nursery = stack.enter_context(nursed(directory, MODULES))
        self.client: redis.Redis = stack.enter_context(server.client())
        self.start("witness", "witness")

    def start(self, role: str, name: str, **told: Any) -> Child:
        """Start a process under this name."""
        arguments = {"directory": str(self.directory), "url": self.server.url, "run": RUN, "name": name, **told}
        return self._start(role, name, arguments)

    def publish(self, name: str, count: int, per_s: float, **told: Any) -> Child:
        self._published[name] = Tail(self.history, f"{name}-[0-9]*")
        return self.start("publisher", name, count=count, per_s=per_s, durable=self.server.falls_back, **told)

    def work(self, place: str, **told: Any) -> str:
        """Start the next incarnation of a worker; its name, which is also that of its consumer."""
        self._incarnations += 1
        name = f"{place}-{self._incarnations}"
        self.start("worker", name, **{"reclaim_after_ms": RECLAIM_MS, **told})
        return name

    def aggregate(self, tier: str, reclaim_after_ms: int = RECLAIM_MS) -> str:
        """Start the next incarnation of an aggregator; its name."""
        self._incarnations += 1
        name = f"{tier.strip('_')}-{self._incarnations}"
        settings = {
            "RUN": RUN,
            "REDIS_URL": self.server.url,
            "KEYRING": str(self.directory / f"{TIERS[tier]}.json"),
            "NAME": name,
            "REGION": REGION,
            "REGIONS": REGION,
            "LOG": "json",
        }
        environment = {f"ESPER_{variable}": value for variable, value in settings.items()}
        self._start("aggregator", name, {"tier": tier, "reclaim_after_ms": reclaim_after_ms}, environment)
        return name

    def _start(
        self, role: str, name: str, arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> Child:
        child = self.nursery.role(f"tests.faults.roles.{role}", arguments, self.log(name), environment)
        self.on[name] = self._stack.enter_context(child)
        return child

    def log(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"

    def kill(self, name: str) -> Child:
        """End it at once; it died of that."""
        child = self.on.pop(name)
        child.kill()
        return child

    def stop_publishing(self) -> None:
        """Publishers end what they are at, until it is acknowledged."""
        for name in [name for name in self.on if name.startswith("publisher")]:
            self.on.pop(name).terminate(SOON_S)

    def publish_on(self) -> None:
        """Return once each publisher has had more acknowledged, or is done.

        One whose server was away tries again after up to 2 s: servers killed as soon as work goes on would starve it.
        """
        before = {name: self._num_acknowledged(name) for name in self._published}
        for name, num in before.items():
            child = self.on[name]
            wait_until(
                lambda name=name, num=num, child=child: not child.alive or self._num_acknowledged(name) > num,  # type: ignore[misc]
                f"{name} publishes on",
            )

    # -- looking -----------------------------------------------------------------------------------------------------

    def held_by(self, consumer: str | None, stream: str = COMMANDS, group: str = GROUP) -> list[str]:
        """Ids of entries that are pending for a consumer; None: for anyone."""
        try:
            rows: Any = self.client.xpending_range(stream, group, "-", "+", 10_000, consumer)
        except redis.ResponseError:
            return []  # no group yet
        return [row["message_id"].decode() for row in rows]

    def newest_receipt(self) -> str:
        """Its entry id."""
        newest: Any = self.client.xrevrange(RECEIPTS, count=1)
        return str(newest[0][0].decode())

    def _num_acknowledged(self, name: str) -> int:
        return len(self._published[name].records()["acknowledged"])

    def applied(self) -> list[Record]:
        """Effects that the witness has seen so far."""
        return self._witnessed.records()["applied"]

    def lease_losses(self, name: str = "*") -> int:
        """How often a process, or any, was refused what it held no lease for any more."""
        return sum(len(events(path, "lease.lost")) for path in (self.directory / "logs").glob(f"{name}.log"))

    def has_begun(self, name: str) -> bool:
        """Whether an aggregator reads: its consumer bears its name."""
        stream = REGIONAL if name.startswith("global") else TELEMETRY
        groups: Any = self.client.xinfo_groups(stream) if self.client.exists(stream) else []
        consumers: Any = [each for group in groups for each in self.client.xinfo_consumers(stream, group["name"])]
        return any(each["name"].decode().startswith(name) for each in consumers)

    def is_witnessed(self, stream: str) -> bool:
        """Whether the witness has seen the newest entry of a stream."""
        newest: Any = self.client.xrevrange(stream, count=1)
        seen = self._witnessed.records()["applied" if stream == RECEIPTS else "counted"]
        return bool(newest) and bool(seen) and seen[-1]["seen_as"] == newest[0][0].decode()

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self, result: Result, timeout_s: float = 2 * SOON_S) -> None:
        """Wait for the publishers and for all that they published; stop the rest, and judge what came of it."""
        for name in [name for name in self.on if name.startswith("publisher")]:
            child = self.on.pop(name)
            wait_until(lambda child=child: not child.alive, f"{name} is done", timeout_s)  # type: ignore[misc]
            assert child.process is not None and child.process.wait() == 0, child.last_words()
        self._drain(timeout_s)
        for name, child in self.on.items():
            result.expect(child.alive, f"{name} ended by itself: {child.last_words()}")
            if child.alive:
                child.terminate(SOON_S)
        result.violations += self._judged_by_what_is_held(result) if self.server.falls_back else judge(self.history)
        self._expect_calm(result)

    def _drain(self, timeout_s: float) -> None:
        groups = {COMMANDS: GROUP, TELEMETRY: "regional", REGIONAL: "global"}
        ends = {COMMANDS: RECEIPTS, TELEMETRY: TOTAL}
        for stream, group in groups.items():
            if self.client.exists(stream):
                what = f"{group} is through with {stream}"
                wait_until(partial(self.server.is_through, stream, group), what, timeout_s)
        for stream, end in ends.items():
            if self.client.exists(stream):
                wait_until(partial(self.is_witnessed, end), f"{end} is witnessed", timeout_s)

    def _judged_by_what_is_held(self, result: Result) -> Iterator[str]:
        held = list(self._held())
        seen = {record["seen_as"] for record in self.applied()}
        result.count("failovers", self.server.num_failovers)
        result.count("effects_taken_back", len(seen - {record["seen_as"] for record in held}))
        return judge(self.history, held)

    def _held(self) -> Iterator[Record]:
        """Effects that Redis holds: one that a fall back took with it went with its acknowledgement."""
        keys = RoleKeyring.load(self.directory / f"{Role.OBSERVER}.json")
        opener = Opener(keys, guard=None, accept=[Domain.RECEIPT, Domain.AGGREGATE], carries_out=True)
        for stream, record in ((RECEIPTS, of_receipt), (TOTAL, of_aggregate)):
            entries: Any = self.client.xrange(stream)
            for entry_id, fields in entries:
                at = entry_id.decode()
                opened = opener.open(fields[b"m"], at, int(at.partition("-")[0]))
                yield {"seen_as": at, **record(opened.message)}

    def _expect_calm(self, result: Result) -> None:
        """No letter is dead, and no process had a traceback."""
        dead: Any = self.client.xrange(DEAD, count=3)
        result.expect(not dead, f"{self.client.xlen(DEAD)} dead letters: {dead}")
        for path in sorted((self.directory / "logs").glob("*.log")):
            said = path.read_text(errors="replace")
            result.expect("Traceback" not in said, f"{path.stem} had a traceback: {said[-500:]}")


@contextmanager
def crew(directory: Path, server: Serving) -> Iterator[Crew]:
    """Everything that is started ends with the block."""
    with ExitStack() as stack:
        yield Crew(directory, server, stack)
