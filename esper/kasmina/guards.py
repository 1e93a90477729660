"""What keeps an operation from being tried at all: open breakers, and memory that all seeds share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from esper.errors import RefusedError
from esper.kasmina.breaker import OPEN, Breaker, breakers_of
from esper.kasmina.gates.evidence import EvidenceCollector
from esper.kasmina.seeds.seed import Seed
from esper.kernels.budget import Budget
from esper.leyline import contracts as pb

COPIES = 4  # of each parameter: itself, its gradient, and two moments of its optimizer


class StepFault(Protocol):
    """A step that the optimizer of a seed could not take."""

    @property
    def seed_id(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def num_in_row(self) -> int:
        """Of this seed's, this one included."""

    @property
    def raised(self) -> bool:
        """Else its gradient was not finite."""


@dataclass
class Guards:
    """One rank's breakers and budget. Whether an operation is refused is agreed on by all ranks."""

    collector: EvidenceCollector
    known: Mapping[str, Seed]
    breakers: Mapping[str, Breaker] = field(init=False)
    budget: Budget = field(init=False)
    opened: Callable[[str], object] = lambda name: None  # a breaker did: tell of it

    def __post_init__(self) -> None:
        self.breakers = breakers_of(self.collector.clock, lambda name: self.opened(name))
        self.budget = Budget(self.collector.config.seeds_memory_bytes)
        self.budget.watch(lambda: 0, _hand_back_to_device)

    def admit(self, *names: str) -> None:
        """Raise RefusedError while one of these breakers is open on any rank. All ranks call it alike."""
        opened = [float(self.breakers[name].state == OPEN) for name in names]
        for name, share in zip(names, self.collector.mean(opened), strict=True):
            if share:
                settings = self.breakers[name].settings
                detail = f"the {name} breaker is open after {settings.threshold} failures, for {settings.open_s:g} s"
                raise RefusedError(pb.ReasonCode.REASON_BREAKER_OPEN, detail)

    def note(self, name: str, *, failed: bool) -> None:
        breaker = self.breakers[name]
        if failed:
            breaker.fail()
        else:
            breaker.succeed()

    def up_to_date(self, but: str = "") -> Budget:
        """The budget with what lives now, except for a seed of this name: what was culled takes nothing."""
        living = [seed for seed in self.known.values() if seed.module is not None and seed.seed_id != but]
        self.budget.hold({seed.seed_id: COPIES * seed.num_bytes for seed in living})
        return self.budget

    def reserve(self, seed_id: str, num_bytes: int) -> None:
        """Set memory aside for a seed with so many bytes of parameters, beside the living ones.

        Raises RefusedError where it does not fit. The amounts are equal on all ranks, and so is the answer.
        """
        try:
            self.up_to_date(but=seed_id).reserve(seed_id, COPIES * num_bytes)
        except RefusedError:
            self.note("memory", failed=True)
            raise
        self.note("memory", failed=False)


def _hand_back_to_device() -> None:
    """What torch's own allocator holds unused, given back; it isn't ours to count."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
