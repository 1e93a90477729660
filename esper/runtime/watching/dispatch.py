"""Seals one controller's commands and puts each on its stream, in the order sealed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from esper.bus import names
from esper.bus.retry import Add, Added, add_until_answered
from esper.leyline import contracts as pb
from esper.leyline.checks import MS_NS
from esper.leyline.commands import Command
from esper.leyline.envelope import DeadlineKind
from esper.leyline.keys.keyring import SECOND_NS, RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.leyline.validate.messages import validate


class Dispatch:
    """Holds a sealer for each of the two roles. Knows nothing of what becomes of a command."""

    def __init__(
        self,
        run_id: str,
        keyring: RoleKeyring,
        producer: str,
        add: Add,
        clock_ns: Callable[[], int] = time.time_ns,
        patience_s: float = 0.0,
    ) -> None:
        self._run_id, self._add, self._clock_ns = run_id, add, clock_ns
        self._producer, self._patience_s = producer, patience_s
        self._controller = Sealer(keyring, Role.CONTROLLER, producer, clock_ns=clock_ns)
        self._optimizer = Sealer(keyring, Role.OPTIMIZER, producer, clock_ns=clock_ns)
        self._turn = asyncio.Lock()

    async def send(self, command: Command, timeout_ms: int = 0) -> Added:
        """The entry, once Redis has it. Raises before anything is sent where a value is out of range.

        Judged later than `timeout_ms` from now it is refused (past_deadline); 0: it has as long as it takes, or what
        an AdaptationCommand says itself. With patience the same bytes are added again after a lost reply, until then.
        """
        if isinstance(command, pb.AdaptationCommand):
            command.issued_by = self._producer
            command.timeout_ms = timeout_ms = timeout_ms or command.timeout_ms
            sealer, stream = self._controller, names.key(self._run_id, "commands")
        else:
            sealer, stream = self._optimizer, names.key(self._run_id, "optimizer")
        validate(command)
        asked_ns = self._clock_ns()  # those before it may take long, each as long as this one
        by = (DeadlineKind.TIME_NS, asked_ns + timeout_ms * MS_NS) if timeout_ms else (DeadlineKind.NONE, 0)
        patience_s = min(self._patience_s, timeout_ms / 1000) if timeout_ms else self._patience_s
        async with self._turn:
            left_s = patience_s - max(0, self._clock_ns() - asked_ns) / SECOND_NS
            return await add_until_answered(self._add, stream, sealer.seal(command, deadline=by), left_s)
