"""What a process with one part is told as it is started, and where it writes down what it does."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.runtime import logging
from esper.runtime.settings import Settings
from tests.faults.history import History


@dataclass(frozen=True, slots=True)
class Told:
    """Arguments, as JSON; a part that needs more adds it. Keyrings and histories lie in the directory."""

    directory: str
    url: str
    run: str
    name: str

    @classmethod
    def begin(cls, role: str) -> Self:
        """What this process was told; from now on it logs as one of this role."""
        told = cls(**json.loads(sys.argv[1]))
        logging.configure(Settings(log="json"), role=role, worker=told.name)
        return told

    def keyring(self, role: Role) -> Path:
        return Path(self.directory) / f"{role}.json"

    def keys(self, role: Role) -> RoleKeyring:
        return RoleKeyring.load(self.keyring(role))

    def history(self, name: str = "") -> History:
        """A log of its own, under this name instead of that of the process."""
        return History(Path(self.directory) / "history", name or self.name)
