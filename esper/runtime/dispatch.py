"""Seals one controller's commands and puts each on its stream, in the order sealed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from esper.bus import names
from esper.leyline import contracts as pb
from esper.leyline.commands import Command
from esper.leyline.keyring import RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.leyline.validate import validate


class Dispatch:
    """Holds a sealer for each of the two roles. Knows nothing of what becomes of a command."""

    def __init__(
        self, run_id: str, keyring: RoleKeyring, producer: str, add: Callable[[str, bytes], Awaitable[str]]
    ) -> None:
        self._run_id, self._add = run_id, add
        self._producer = producer
        self._controller = Sealer(keyring, Role.CONTROLLER, producer)
        self._optimizer = Sealer(keyring, Role.OPTIMIZER, producer)
        self._turn = asyncio.Lock()

    async def send(self, command: Command) -> str:
        """The entry id, once Redis has it. Raises before anything is sent where a value is out of range."""
        if isinstance(command, pb.AdaptationCommand):
            command.issued_by = self._producer
            sealer, stream = self._controller, names.key(self._run_id, "commands")
        else:
            sealer, stream = self._optimizer, names.key(self._run_id, "optimizer")
        validate(command)
        async with self._turn:
            return await self._add(stream, sealer.seal(command))
