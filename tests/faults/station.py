"""One run on a real server whose entries are written by hand: a witness, workers, what became of each entry."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis

from esper.bus import names
from esper.leyline.kinds import Role
from tests.faults.forge import Secrets
from tests.faults.history import History, Record
from tests.faults.nursery import Cradle
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.roles.worker import GROUP
from tests.faults.scene import Tail
from tests.faults.server import Server

MODULES = [f"tests.faults.roles.{role}" for role in ("witness", "worker", "poisoned")]


class Station:
    """Keys, processes and histories of one run below one directory."""

    def __init__(self, directory: Path, secrets: Secrets, server: Server, nursery: Cradle, stack: ExitStack) -> None:
        self.directory, self.server, self.secrets, self._stack = directory, server, secrets, stack
        self.history = directory / "history"
        self.commands, self.dead = (names.key(secrets.run, name) for name in ("commands", "dead"))
        self._nursery = nursery
        self._witnessed = Tail(self.history, "witness")
        directory.mkdir(exist_ok=True)
        for role in (Role.WORKER, Role.OBSERVER):
            secrets.keyring(role).save(directory / f"{role}.json")
        self._told = stack.enter_context(History(self.history, "publisher"))
        self.client: redis.Redis = stack.enter_context(redis.Redis.from_url(server.url, socket_timeout=30.0))
        self.client.xgroup_create(self.commands, GROUP, "0", mkstream=True)
        self.witness = self.start("witness", "witness")

    def start(self, role: str, name: str, **told: Any) -> Child:
        """Start a process under this name."""
        run = {"directory": str(self.directory), "url": self.server.url, "run": self.secrets.run, "name": name}
        child = self._nursery.role(f"tests.faults.roles.{role}", {**run, **told}, self.log(name))
        return self._stack.enter_context(child)

    def log(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"

    def add(self, entries: Sequence[tuple[tuple[bytes, ...], str]]) -> list[str]:
        """Ids of these entries, fields and values in a row each; behind it the command that has to take effect."""
        self._told.note_all([{"what": "published", "id": command_id} for _, command_id in entries if command_id])
        pipeline: Any = self.client.pipeline(transaction=False)
        for fields, _ in entries:
            pipeline.execute_command("XADD", self.commands, "*", *fields)
        ids = [entry_id.decode() for entry_id in pipeline.execute()]
        self._told.note_all([{"what": "acknowledged", "id": command_id} for _, command_id in entries if command_id])
        return ids

    def applied(self) -> list[Record]:
        """Effects that the witness has seen so far."""
        return self._witnessed.records()["applied"]

    def letters(self) -> dict[str, dict[bytes, bytes]]:
        """Dead letters by the entry that each was; more than one of an entry would be told."""
        found: Any = self.client.xrange(self.dead)
        letters = {fields[b"entry_id"].decode(): fields for _, fields in found}
        assert len(letters) == len(found), "an entry has two dead letters"
        return letters

    def is_through(self) -> bool:
        """Whether the group has nothing pending and nothing unread."""
        return self.server.is_through(self.commands, GROUP)

    def drain(self, timeout_s: float = 2 * SOON_S) -> None:
        """Wait until every entry is settled and every effect of that witnessed."""
        wait_until(self.is_through, f"{GROUP} is through with {self.commands}", timeout_s)
        receipts: Any = self.client.xlen(names.key(self.secrets.run, "receipts"))
        wait_until(lambda: len(self.applied()) >= receipts, "all is witnessed", timeout_s)
