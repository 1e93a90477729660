"""What `esper publish` waits for, how long, and what may become of a command whose end it did not see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from esper.bus.faults import LostError
from esper.errors import CommandFailedError, EsperError, UnansweredError
from esper.leyline.terminal_text import printable
from esper.view.wording import counted

if TYPE_CHECKING:
    from esper.client import Controller, Receipt
    from esper.leyline import contracts as pb

LOOK_S = 0.5
"""For Redis to show that it is there, once nobody has answered."""


class UnseenError(EsperError):
    """What was asked for was not seen through. `fate`: what may come of it all the same."""

    def __init__(self, why: str, fate: str) -> None:
        self.fate = fate
        super().__init__(f"{why}; {fate}")


@dataclass
class Deadline:
    """Seconds from the first call to the last answer; none, or 0: Redis has as long as it may always take."""

    seconds: float | None
    _end: float | None = field(init=False)

    def __post_init__(self) -> None:
        self._end = asyncio.get_running_loop().time() + self.seconds if self.seconds else None

    @property
    def left_s(self) -> float:
        """Until its end; 0: it has none, or is over."""
        return 0.0 if self._end is None else max(0.0, self._end - asyncio.get_running_loop().time())

    @asynccontextmanager
    async def connecting(self) -> AsyncIterator[None]:
        """UnseenError where Redis does not let the block end in time."""
        try:
            async with asyncio.timeout_at(self._end):
                yield
        except TimeoutError:
            raise UnseenError(f"Redis gave no answer in {self.seconds:g} s", "nothing was published") from None

    @asynccontextmanager
    async def sending(self, controller: Controller) -> AsyncIterator[None]:
        """UnseenError where the block does not end in time, or Redis goes away for longer than that."""
        void = ""
        if self.seconds:
            void = f", and is void (past_deadline) unless it is accepted within {self.seconds:g} s of being sent"
        fate = f"the command may be on its stream all the same{void}: `esper audit` tells"
        try:
            async with asyncio.timeout_at(self._end):
                yield
        except TimeoutError:
            raise UnseenError(f"no answer in {self.seconds:g} s{await silence(controller)}", fate) from None
        except LostError as error:
            raise UnseenError(str(error), fate) from error

    async def accepted(self, controller: Controller, receipt: Receipt) -> pb.CommandReceipt:
        """The acceptance. UnseenError: none came."""
        try:
            return await receipt.accepted(self.left_s)
        except UnansweredError as error:
            fate = "accepted later it is void (past_deadline)" if self.seconds else "it may yet be accepted"
            raise await self._unseen(controller, error, f"{fate}: `esper audit` tells") from error

    async def applied(
        self, controller: Controller, receipt: Receipt, acceptance: pb.CommandReceipt
    ) -> list[pb.CommandReceipt]:
        """What each rank answered. UnseenError: one did not."""
        try:
            return await receipt.applied(self.left_s)
        except UnansweredError as error:
            fate = f"it was accepted, and takes effect on each that comes to step {acceptance.step}"
            raise await self._unseen(controller, error, fate) from error

    async def _unseen(self, controller: Controller, error: UnansweredError, fate: str) -> UnseenError:
        """With the whole time that was waited."""
        told = UnansweredError(error.command_id, self.seconds or 0.0, error.missing, error.unopened)
        return UnseenError(f"{told}{await silence(controller)}", fate)


@dataclass
class Refusals:
    """Tells on stderr why a gate held a command back that is published again, in each wording once."""

    attempts_left: int
    timeout_s: float
    _told: set[str] = field(default_factory=set)

    async def heard(self, operation: Callable[[], Awaitable[Receipt]]) -> Receipt:
        """The receipt, once all have answered. UnansweredError: one did not."""
        receipt = await operation()
        self.attempts_left -= 1
        try:
            await receipt.applied(self.timeout_s)
        except CommandFailedError as error:
            self._tell(error)
        return receipt

    def _tell(self, error: CommandFailedError) -> None:
        will_try = self.attempts_left and error.reason == "gate_failed" and not error.ended_the_seed
        if will_try and error.detail not in self._told:
            self._told.add(error.detail)
            left = counted(self.attempts_left, "attempt")
            typer.echo(printable(f"held back by {error.worker}, {left} left: {error.detail}"), err=True)


async def silence(controller: Controller) -> str:
    """That Redis does not answer; empty where it does."""
    try:
        async with asyncio.timeout(LOOK_S):
            await controller.status()
    except (TimeoutError, LostError):
        return ", nor does Redis answer"
    return ""
