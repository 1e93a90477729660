"""One part of a row: it is run, judged whatever becomes of it, and can be done again by a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.processes import TooLateError
from tests.faults.row import Result, Row
from tests.faults.several import KINDS, SINGLE

MOST_PARTS = 1_000  # of one seed


@dataclass(frozen=True, slots=True)
class Part:
    """`changed`: other amounts than those of the tier. `server`: what Redis is, by its name."""

    row: Row
    tier: str
    seed: int
    chunk: int = 0
    changed: Mapping[str, int] = field(default_factory=dict)
    server: str = SINGLE

    @property
    def again(self) -> str:
        """The command that repeats it."""
        sets = "".join(f" --set {name}={number}" for name, number in self.changed.items())
        where = "" if self.server == SINGLE else f" --server {self.server}"
        given = f"--row {self.row.name} --tier {self.tier} --seed {self.seed} --chunk {self.chunk}{where}{sets}"
        return f"python bench/faults.py {given}"

    def run(self, directory: Path) -> Result:
        """What came of it in an empty directory; a fault that did not take effect is a promise broken too."""
        amounts = self.row.amounts(self.tier, self.changed)
        told = {} if self.server == SINGLE else {"serve": KINDS[self.server]}
        try:
            return self.row.run(directory, amounts, self.seed * MOST_PARTS + self.chunk, **told)
        except TooLateError as error:
            return Result(late=[str(error)])
        except AssertionError as error:
            return Result(violations=[str(error) or "something that must hold did not"])
