"""Seals one controller's commands and puts each on its stream, in the order sealed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from esper.bus import names
from esper.leyline import contracts as pb
from esper.leyline.commands import Command
from esper.leyline.envelope import DeadlineKind
from esper.leyline.keyring import RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.leyline.validate import validate

MS_NS = 1_000_000


class Dispatch:
    """Holds a sealer for each of the two roles. Knows nothing of what becomes of a command."""

    def __init__(
        self,
        run_id: str,
        keyring: RoleKeyring,
        producer: str,
        add: Callable[[str, bytes], Awaitable[str]],
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._run_id, self._add, self._clock_ns = run_id, add, clock_ns
        self._producer = producer
        self._controller = Sealer(keyring, Role.CONTROLLER, producer, clock_ns=clock_ns)
        self._optimizer = Sealer(keyring, Role.OPTIMIZER, producer, clock_ns=clock_ns)
        self._turn = asyncio.Lock()

    async def send(self, command: Command, timeout_ms: int = 0) -> str:
        """The entry id, once Redis has it. Raises before anything is sent where a value is out of range.

        Judged later than `timeout_ms` from now it is refused (past_deadline); 0: it has as long as it takes, or what
        an AdaptationCommand says itself.
        """
        if isinstance(command, pb.AdaptationCommand):
            command.issued_by = self._producer
            command.timeout_ms = timeout_ms = timeout_ms or command.timeout_ms
            sealer, stream = self._controller, names.key(self._run_id, "commands")
        else:
            sealer, stream = self._optimizer, names.key(self._run_id, "optimizer")
        validate(command)
        async with self._turn:
            by = (DeadlineKind.TIME_NS, self._clock_ns() + timeout_ms * MS_NS) if timeout_ms else (DeadlineKind.NONE, 0)
            return await self._add(stream, sealer.seal(command, deadline=by))
