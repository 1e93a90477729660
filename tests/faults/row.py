"""A row of the fault table: how much of what is done to the system, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeAlias

from tests.faults import rows


class AmountError(ValueError):
    """An amount was to be changed that a row has not."""


Amounts: TypeAlias = Mapping[str, int]  # what is done, and how often: {"messages": 20_000, "worker_kills": 40}


@dataclass(slots=True)
class Result:
    """What a run of a row has counted and timed, and every promise that it saw broken, one sentence each."""

    counts: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # what held, but not within the seconds promised

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def sample(self, what: str, value: float) -> None:
        """One measured value; the name ends in its unit, as `resumed_s`."""
        self.samples.setdefault(what, []).append(value)

    def expect(self, holds: bool, sentence: str) -> None:
        """Note a violation unless it holds."""
        if not holds:
            self.violations.append(sentence)

    def expect_soon(self, holds: bool, sentence: str) -> None:
        """The same of a promise in seconds, which a machine that stood still can break too."""
        if not holds:
            self.late.append(sentence)

    @property
    def broken(self) -> list[str]:
        """Every promise that did not hold."""
        return self.violations + self.late

    def add(self, other: Result) -> None:
        """Take in what another run of the same row has seen."""
        for what, number in other.counts.items():
            self.count(what, number)
        for what, values in other.samples.items():
            self.samples.setdefault(what, []).extend(values)
        self.violations += other.violations
        self.late += other.late


@dataclass(frozen=True, slots=True)
class Row:
    """`run(directory, amounts, seed)` does it once, in an empty directory of its own with a short path. Where it can be
    done `anywhere`, `run` takes as `serve` also another Redis than one server.

    The full tier is `chunk`, `num_chunks` times with a seed each, so that it can be resumed between two of them.
    """

    name: str
    run: Callable[..., Result]
    ci: Amounts
    chunk: Amounts
    num_chunks: int
    anywhere: bool = False

    def amounts(self, tier: str, changed: Amounts) -> Amounts:
        """Those of the tier, but for what was changed. AmountError for a name that the row has not."""
        asked = self.ci if tier == "ci" else self.chunk
        for name, number in changed.items():
            if name not in asked:
                raise AmountError(f"{name} is {number}; expected one of the amounts of {self.name}: {', '.join(asked)}")
        return {**asked, **changed}


def table() -> Iterator[Row]:
    """Every row, by the name of its file."""
    for module in sorted(iter_modules(rows.__path__), key=lambda module: module.name):
        yield import_module(f"{rows.__name__}.{module.name}").ROW
