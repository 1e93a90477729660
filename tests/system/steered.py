"""A live coordinator on the suite's Redis, and a controller's script that runs beside a training loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from esper.client import Controller, Receipt
from esper.errors import CommandFailedError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from tests.system.processes import Start, buried, started

Answers = dict[str, list[pb.CommandReceipt]]
Story = Callable[[Controller], Awaitable[Answers]]
WORKER, PATIENT_S = "worker-0", "60"


class Steered:
    """One run. `told` is what the controller's script came to know; its errors are raised there."""

    def __init__(self, redis_url: str, run_id: str, directory: Path, start: Start = started) -> None:
        self.redis_url, self.run_id, self.directory, self._started = redis_url, run_id, directory, start
        self.master = MasterKeyring.new(time.time_ns())
        self.worker = self._environment(WORKER, Role.WORKER)
        self.controller = self._environment("controller", Role.CONTROLLER, Role.OPTIMIZER)
        self._script: Future[Answers] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the script has ended, one way or the other."""
        return self._script is not None and self._script.done()

    @property
    def told(self) -> Answers:
        assert self._script is not None
        return self._script.result(timeout=60.0)

    @contextmanager
    def controlled(self, story: Story) -> Iterator[None]:
        """Coordinated, and with a controller that plays the story, for as long as the block takes."""
        log, environment = self.directory / "coordinator.log", self._environment("coordinator", Role.COORDINATOR)
        environment["ESPER_SILENCE_S"] = PATIENT_S  # nobody starts these ranks again where the machine stands still
        with ThreadPoolExecutor(1) as thread:
            process = self._started("esper.workers.coordinator", log, environment)
            try:
                self._script = thread.submit(asyncio.run, self._play(story))
                yield
            finally:
                process.terminate()
                buried(process)

    async def _play(self, story: Story) -> Answers:
        keyring = self.controller["ESPER_KEYRING"]
        async with Controller.connect(self.run_id, redis_url=self.redis_url, keyring=keyring) as controller:
            await controller.until(lambda _: True)
            return await story(controller)

    def _environment(self, name: str, *roles: Role) -> dict[str, str]:
        path = self.directory / f"{name}.json"
        self.master.derive(self.run_id, list(roles)).save(path)
        return {
            "ESPER_RUN": self.run_id,
            "ESPER_REDIS_URL": self.redis_url,
            "ESPER_KEYRING": str(path),
            "ESPER_NAME": name,
        }


async def insisted(operation: Callable[[], Awaitable[Receipt]], attempts: int = 40) -> list[pb.CommandReceipt]:
    """Ask again while a gate lacks evidence; every round is at least eight steps of training."""
    for _ in range(attempts):
        try:
            return await (await operation()).applied()
        except CommandFailedError as error:
            if error.reason != "gate_failed":
                raise
            held = error
    raise held
