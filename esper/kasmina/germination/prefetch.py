"""Kernels made before they are asked for: between two steps, so that the germination itself only picks one up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from esper.errors import RefusedError
from esper.kasmina.germination.kernels import Kernels
from esper.kasmina.moves import Op, without_auto
from esper.kernels.budget import Budget
from esper.leyline import contracts as pb

WHENEVER = math.inf
MOST_UNJUDGED = 16
"""Wanted at a time of what no coordinator has judged."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the next germination at a site will ask for, before step `due`."""

    site: str
    blueprint_id: str
    parameters: Mapping[str, float]
    due: float = WHENEVER

    @property
    def kernel(self) -> tuple[str, str, Mapping[str, float]]:
        return self.site, self.blueprint_id, self.parameters


@dataclass(frozen=True, slots=True)
class Prefetched:
    """What became of one; `detail` says why it is not in the pool."""

    wanted: Wanted
    took_ms: float
    detail: str = ""


@dataclass
class Prefetch:
    """The kernels that are wanted, each made in good time and no more a step than that takes.

    Made on the thread that trains: a builder draws from torch's global generator, and torch's compiler puts that back
    to where it found it, so that beside a running step the host would draw other numbers. Ranks may differ in what
    they have made: it can't be told from the weights, and no collective is called.
    """

    kernels: Kernels
    budget: Callable[[], Budget]  # up to date
    wanted: list[Wanted] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.wanted)

    def want(self, wanted: Wanted) -> None:
        """Once, by the earlier step. RefusedError where a name or a value is unknown."""
        if self.kernels.next_id(*wanted.kernel) in self.kernels.pool:
            return
        alike = [each for each in self.wanted if each.kernel == wanted.kernel]
        if not alike or wanted.due < alike[0].due:
            self.wanted = [each for each in self.wanted if each not in alike] + [wanted]

    def foresee(self, command: pb.SeedCommand, due: float = WHENEVER) -> None:
        """Want what a command will that has come, or was committed for step `due`.

        What will be refused is answered when it is judged or takes effect. Nothing is made for a site that is taken.
        """
        if command.operation != Op.SEED_OP_GERMINATE or (due == WHENEVER and len(self) >= MOST_UNJUDGED):
            return
        try:
            command, _ = without_auto(command)
            if self.kernels.slot(command.site).seed is None:
                self.want(Wanted(command.site, command.blueprint_id, dict(command.parameters), due))
        except RefusedError:
            return

    def take_due(self, step: int) -> list[Wanted]:
        """Those to make before this step, the most urgent first. One whose site has carried no batch yet is not."""
        self.wanted = sorted((each for each in self.wanted if each.due > step), key=lambda each: each.due)
        possible = [each for each in self.wanted if self.kernels.slots[each.site].shape is not None]
        shares = [math.ceil(num / (each.due - step)) for num, each in enumerate(possible, start=1)]
        now = possible[: max(1, max(shares))] if possible else []
        self.wanted = [each for each in self.wanted if each not in now]
        return now

    def make(self, wanted: Wanted) -> Prefetched:
        """Build and compile it, unless that was done already, and keep it where the pool and the budget let it be."""
        clock = self.kernels.collector.clock
        begun = clock()
        try:
            detail = self._made(wanted)
        except RefusedError as error:
            detail = error.detail
        return Prefetched(wanted, (clock() - begun) * 1e3, detail)

    def _made(self, wanted: Wanted) -> str:
        """Why it is not in the pool now; RefusedError as its germination would raise."""
        kernel_id = self.kernels.next_id(*wanted.kernel)
        if kernel_id not in self.kernels.pool:
            self.kernels.prepare(*wanted.kernel)
            if kernel_id not in self.kernels.pool:
                return "the pool has no room for it"
        budget = self.budget()
        if budget.is_short:
            detail = f"seeds and pools take {budget.used_bytes} of {budget.limit_bytes} bytes with it"
            self.kernels.evict_kernel(kernel_id)
            return detail
        return ""
