"""The parameters of a blueprint: names, ranges, and what is said of a value that does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from esper.errors import RefusedError, listed, near
from esper.leyline import contracts as pb


@dataclass(frozen=True, slots=True)
class BlueprintRange:
    """One parameter of a blueprint."""

    name: str
    default: float
    minimum: float
    maximum: float
    integer: bool = True
    meaning: str = field(default="", repr=False)  # for the table in docs/; no part of the digest

    def checked(self, value: float) -> float:
        """`value` itself; RefusedError where it is out of range, or a fraction where an integer is expected."""
        whole = not self.integer or float(value).is_integer()
        if not (self.minimum <= value <= self.maximum and whole):
            kind = "an integer" if self.integer else "a number"
            detail = f"parameter {self.name} is {value:g}; expected {kind} in [{self.minimum:g}, {self.maximum:g}]"
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, detail)
        return value

    def as_message(self) -> pb.BlueprintParameter:
        return pb.BlueprintParameter(
            name=self.name, default_value=self.default, minimum=self.minimum, maximum=self.maximum, integer=self.integer
        )


def resolved(blueprint_id: str, parameters: Sequence[BlueprintRange], given: Mapping[str, float]) -> dict[str, float]:
    """Defaults overlaid with `given`; raises RefusedError on an unknown name or a value that does not fit."""
    table = {row.name: row for row in parameters}
    for name in given:
        if name not in table:
            detail = f"blueprint {blueprint_id} has no parameter {name!r}{near(name, table)}; it has {listed(table)}"
            raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_PARAMETER, detail)
    return {name: row.checked(float(given.get(name, row.default))) for name, row in table.items()}
