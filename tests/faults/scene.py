"""A run of commanders and followers on a real server, and what a row asks and does of it."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis

from esper.bus import names
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from tests.faults.accounts import Accounts
from tests.faults.history import Record, whole_lines
from tests.faults.nursery import nursed
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.row import Result
from tests.faults.server import Server


class Tail:
    """The records of one role, read on from where the last look ended."""

    def __init__(self, directory: Path, role: str) -> None:
        self._directory, self._role = directory, role
        self._positions: dict[Path, int] = {}
        self._records: defaultdict[str, list[Record]] = defaultdict(list)

    def records(self) -> defaultdict[str, list[Record]]:
        """By what happened."""
        for path in sorted(self._directory.glob(f"{self._role}-*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._positions.get(path, 0))
                whole = whole_lines(file)
            self._positions[path] = self._positions.get(path, 0) + sum(map(len, whole))
            for record in map(json.loads, whole):
                self._records[record["what"]].append(record)
        return self._records


RUN = "faults-0a1b2c3d"
MODULES = [f"tests.faults.roles.{role}" for role in ("commander", "follower")]
COMMANDS = names.key(RUN, "commands")


class Scene:
    """Keys, processes and histories below one directory. Knows nothing of which faults are to come."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory, self._stack = directory, stack
        self.commanders: dict[str, Child] = {}
        self.followers: dict[str, Child] = {}
        self._nursery = stack.enter_context(nursed(directory, MODULES))
        self._tails: dict[str, Tail] = {}
        master = MasterKeyring.new(time.time_ns())
        for role in (Role.CONTROLLER, Role.WORKER):
            master.derive(RUN, [role]).save(directory / f"{role}.json")

    @property
    def history(self) -> Path:
        return self.directory / "history"

    def command(self, name: str, url: str, **told: Any) -> Child:
        """Start a commander."""
        self.commanders[name] = self.start("commander", name, url, **told)
        return self.commanders[name]

    def follow(self, name: str, url: str, **told: Any) -> Child:
        """Start a follower; its group is there on return."""
        self.followers[name] = self.start("follower", name, url, **told)
        wait_until(lambda: bool(self.said(name, "ready")), f"{name} is ready")
        return self.followers[name]

    def start(self, role: str, name: str, url: str, **told: Any) -> Child:
        """Start a process that nothing more is asked of."""
        arguments = {"directory": str(self.directory), "url": url, "run": RUN, "name": name, **told}
        child = self._nursery.role(f"tests.faults.roles.{role}", arguments, self.log(name))
        return self._stack.enter_context(child)

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def said(self, name: str, what: str) -> list[Record]:
        """What a process has recorded so far."""
        tail = self._tails.setdefault(name, Tail(self.history, name))
        return tail.records()[what]

    def goes_on(self, name: str, more: int = 3, timeout_s: float = SOON_S) -> None:
        """Wait until a commander has so many more commands acknowledged."""
        enough = len(self.said(name, "acked")) + more
        wait_until(lambda: len(self.said(name, "acked")) >= enough, f"{name} goes on", timeout_s)

    def follows(self, name: str, timeout_s: float = SOON_S) -> None:
        """Wait until a follower has carried out a command that was sent after this call."""
        sent = {record["id"] for each in self.commanders for record in self.said(each, "sent")}

        def newest_is_new() -> bool:
            return any(record["id"] not in sent for record in self.said(name, "applied")[-1:])

        wait_until(newest_is_new, f"{name} follows", timeout_s)

    def finish(self, server: Server, timeout_s: float = SOON_S) -> Accounts:
        """Stop the commanders, let the followers come to the end of the stream, stop these; the accounts."""
        for commander in self.commanders.values():
            commander.terminate(SOON_S)
        for name in self.followers:
            wait_until(partial(server.is_through, COMMANDS, name), f"{name} is through", timeout_s)
        for follower in self.followers.values():
            follower.terminate(SOON_S)
        return Accounts.read(self.history, self.commanders, self.followers)


@contextmanager
def scene(directory: Path) -> Iterator[Scene]:
    """Everything that is started ends with the block."""
    with ExitStack() as stack:
        yield Scene(directory, stack)


def effects(server: Server, follower: str) -> Counter[str]:
    """Ids of the commands whose effect Redis holds, and how often."""
    with redis.Redis.from_url(server.url) as client:
        entries: Any = client.xrange(names.key(RUN, f"effects-{follower}"))
    return Counter(fields[b"m"].decode() for _, fields in entries)


def entry_ids(server: Server) -> set[str]:
    """Of every command that Redis holds."""
    with redis.Redis.from_url(server.url) as client:
        entries: Any = client.xrange(COMMANDS)
    return {entry_id.decode() for entry_id, _ in entries}


def check_logs(result: Result, scene: Scene, num_faults: int, within_s: float) -> None:
    """A fault has each process say at most one line a second while it may last, and the start of each says one."""
    for name in (*scene.commanders, *scene.followers):
        said = scene.log(name).read_text(errors="replace")
        lines = said.count("\n")
        result.sample("log_lines_per_fault", lines / num_faults)
        result.expect(lines <= 1 + num_faults * within_s, f"{name} wrote {lines} lines over {num_faults} faults")
        result.expect("Traceback" not in said, f"{name} had a traceback: {said[-500:]}")
