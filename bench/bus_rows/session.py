"""One row under way: its server, its amounts, what it found and which arms failed."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from esper.bench.effort import Mode
from esper.bench.rounds.part import Part, PartError
from report import Report

PATIENCE_S = 600.0
Slice = TypeVar("Slice")
Arms: TypeAlias = dict[str, Callable[[], float]]  # one slice of each; what it returns is a rate


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything that a row has."""

    num: int  # messages a slice
    rounds: int
    calls: int = 0  # awaited one by one
    seconds: float = 0.0  # at a steady rate
    backlog: int = 0  # entries behind, and pending


FULL = Amounts(num=20_000, rounds=15, calls=8_000, seconds=10.0, backlog=1_000_000)
QUICK = Amounts(num=4_000, rounds=3, calls=400, seconds=1.0, backlog=30_000)
AMOUNTS: Mapping[Mode, Amounts] = {
    "quick": QUICK,
    "gate": replace(QUICK, num=10_000, rounds=6, seconds=6.0),
    "full": FULL,
}


@dataclass(slots=True)
class Session:
    """Keeps one process for each arm, for as long as it is measured."""

    url: str
    directory: Path
    amounts: Amounts
    report: Report
    order: random.Random
    failures: list[str] = field(default_factory=list)
    _arms: dict[str, Part] = field(default_factory=dict)

    def ask(self, process: str, name: str, **given: object) -> Any:
        """Call a function of an arm's module; `process` is the module, and after a colon whose process of several."""
        self.tell(process, name, **given)
        return self.answer(process)

    def tell(self, process: str, name: str, **given: object) -> None:
        if process not in self._arms:
            self._arms[process] = Part("bus_arms.run", process, self.directory)
        self._arms[process].tell(call=name, given={"url": self.url, "directory": str(self.directory), **given})

    def answer(self, process: str) -> Any:
        return self._arms[process].answer(PATIENCE_S)

    def close(self) -> None:
        for arm in self._arms.values():
            arm.close()
        self._arms.clear()

    def in_turns(
        self, row: str, unit: str, arms: Mapping[str, Callable[[], Slice]], num: int = 0, *, warm: int = 1
    ) -> dict[str, list[Slice]]:
        """What each arm returned in each of `num` rounds, else of the row's, in an order drawn anew; the first, `warm`
        ones only show that it works.

        An arm that fails takes no further part, and is told of.
        """
        left, slices = dict(arms), {name: list[Slice]() for name in arms}
        for _ in range(warm + (num or self.amounts.rounds)):
            for name in self.order.sample(list(left), len(left)):
                try:
                    slices[name].append(left[name]())
                except PartError as error:
                    self.failed(row, name, unit, error.why)
                    del left[name], slices[name]
        return {name: taken[warm:] for name, taken in slices.items()}

    def failed(self, row: str, arm: str, unit: str, why: str) -> None:
        """Note it, say it, and end every process: those that worked with this one may wait for it."""
        self.failures.append(f"{row}: {arm}: {why}")
        print(self.failures[-1], file=sys.stderr, flush=True)
        self.report.add_missing(row, arm, unit, f"failed: {why}")
        self.close()


def joined(slices: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, list[float]]:
    """All samples of each arm."""
    return {arm: [each for taken in slices_of for each in taken] for arm, slices_of in slices.items()}
