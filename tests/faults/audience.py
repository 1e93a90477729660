"""Listeners of both kinds, one alone and a team, in as many runs as a row needs; and what they heard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import redis

from esper.bus import names
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from tests.faults.history import Record
from tests.faults.nursery import nursed
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.row import Result
from tests.faults.scene import Tail
from tests.faults.serving import Serving

MODULES = [f"tests.faults.roles.{role}" for role in ("listener", "publisher")]
ALONE, TEAM = "alone", "team"
TOGETHER = 500  # entries added in one round trip


@dataclass(frozen=True, slots=True)
class Seats:
    """Who listens in one run: one alone, so and so many as a team. Histories of two runs lie in two directories."""

    run: str
    directory: Path
    members: int = 2

    def key(self, name: str) -> str:
        return names.key(self.run, name)

    def derive(self, master: MasterKeyring, roles: Iterable[Role]) -> None:
        """Save the keyrings of these roles, over what is there."""
        for role in roles:
            master.derive(self.run, [role]).save(self.directory / f"{role}.json")


class Audience:
    """Listeners by name. Each incarnation of a member has a name of its own; who listens alone keeps it."""

    def __init__(self, directory: Path, server: Serving, stack: ExitStack) -> None:
        self.server, self._stack = server, stack
        self.nursery = stack.enter_context(nursed(directory, MODULES))
        self.client: redis.Redis = stack.enter_context(server.client())
        self.on: dict[str, list[Child]] = {}
        self.logs: list[Path] = []
        self._num_started = 0
        self._tails: dict[tuple[Path, str], Tail] = {}

    def start(self, role: str, name: str, seats: Seats, **told: Any) -> Child:
        """Start one process."""
        arguments = {"directory": str(seats.directory), "url": self.server.url, "run": seats.run, "name": name, **told}
        self._num_started += 1
        log = seats.directory / "logs" / f"{name}-{self._num_started}.log"
        self.logs.append(log)
        child = self.nursery.role(f"tests.faults.roles.{role}", arguments, log)
        return self._stack.enter_context(child)

    def listen(self, seats: Seats, *, members: int | None = None, **told: Any) -> None:
        """Have everybody of a run listen; `members`: not the usual number of the team."""
        children = [self.start("listener", ALONE, seats, group=ALONE, **told)]
        for _ in range(seats.members if members is None else members):
            name = f"{TEAM}-{self._num_started}"
            children.append(self.start("listener", name, seats, group=TEAM, guarded=False, **told))
        self.on[seats.run] = children

    def kill(self, seats: Seats) -> int:
        """SIGKILL to everybody of a run; how many died of it."""
        children = self.on.pop(seats.run)
        for child in children:
            child.kill()
        return len(children)

    def stop(self, seats: Seats) -> int:
        """SIGTERM to everybody of a run; how many ended in order."""
        children = self.on.pop(seats.run)
        for child in children:
            child.terminate(SOON_S)
        return len(children)

    def add(self, stream: str, messages: Sequence[bytes], entry_ids: Sequence[str] = ()) -> list[str]:
        """Add sealed messages to a stream, as entries of these ids where they are given; the ids."""
        added: list[str] = []
        for start in range(0, len(messages), TOGETHER):
            pipeline: Any = self.client.pipeline(transaction=False)
            for at, sealed in enumerate(messages[start : start + TOGETHER], start):
                pipeline.xadd(stream, {b"m": sealed}, id=entry_ids[at] if entry_ids else "*")
            added += [entry_id.decode() for entry_id in pipeline.execute()]
        return added

    # -- looking -----------------------------------------------------------------------------------------------------

    def pending(self, seats: Seats, group: str) -> list[str]:
        """Ids of commands that are pending in a group."""
        try:
            rows: Any = self.client.xpending_range(seats.key("commands"), group, "-", "+", 100_000)
        except redis.ResponseError:
            return []  # no group yet
        return [row["message_id"].decode() for row in rows]

    def heard(self, seats: Seats, group: str, stream: str) -> dict[str, list[Record]]:
        """What a group did with the entries of a stream so far, by what happened."""
        name = f"{group}@{stream}"
        tail = self._tails.setdefault((seats.directory, name), Tail(seats.directory / "history", name))
        return tail.records()

    def await_end(self, seats: Seats, stream: str, timeout_s: float = 2 * SOON_S) -> None:
        """Wait until both groups have nothing pending and nothing unread, and the newest entry is written down."""
        for group in (ALONE, TEAM):
            what = f"{group} of {seats.run} is through with {stream}"
            wait_until(partial(self._is_through, seats, stream, group), what, timeout_s)

    def _is_through(self, seats: Seats, stream: str, group: str) -> bool:
        groups: Any = self.client.xinfo_groups(seats.key(stream))
        state = {row["name"].decode(): row for row in groups}.get(group)
        if state is None or state["pending"]:
            return False
        last = state["last-delivered-id"].decode()
        unread: Any = self.client.xrange(seats.key(stream), min=f"({last}", count=1)
        if unread:
            return False  # an entry that a whole team refused may be gone, also for who has yet to read it
        told = self.heard(seats, group, stream).values()
        return group == TEAM or any(records[-1]["entry_id"] == last for records in told if records)

    def effects(self, seats: Seats, group: str) -> Counter[str]:
        """Ids of the commands whose effect Redis holds, and how often."""
        entries: Any = self.client.xrange(seats.key(f"effects-{group}"))
        return Counter(fields[b"m"].decode() for _, fields in entries)

    def expect_calm(self, result: Result) -> None:
        """No process had a traceback."""
        for log in self.logs:
            said = log.read_text(errors="replace") if log.exists() else ""
            result.expect("Traceback" not in said, f"{log.stem} had a traceback: {said[-500:]}")


@contextmanager
def audience(directory: Path, server: Serving) -> Iterator[Audience]:
    """Everything that is started ends with the block."""
    with ExitStack() as stack:
        yield Audience(directory, server, stack)
