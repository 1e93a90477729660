"""The running total of a run, as it stands in Redis under `totals`; for whoever wants to read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from esper.leyline import contracts as pb

COUNTED = "counted"  # packets folded
REGIONAL = "regional"  # regional aggregates folded
GLOBAL = "global"  # global aggregates written
SHED = "shed"
GAPS = "gaps"
DUPLICATES = "duplicates"
AGGREGATE = "aggregate"  # a serialised AggregatedTelemetry over all of them


@dataclass(frozen=True, slots=True)
class Totals:
    """What the global tier has folded so far, each packet once."""

    counted: int
    regional: int
    global_: int
    shed: int
    gaps: int
    duplicates: int
    aggregate: pb.AggregatedTelemetry


def decode(fields: Mapping[bytes, bytes]) -> Totals:
    """The totals in the fields of that hash; of an absent one, zeros."""
    return Totals(
        counted=_number(fields, COUNTED),
        regional=_number(fields, REGIONAL),
        global_=_number(fields, GLOBAL),
        shed=_number(fields, SHED),
        gaps=_number(fields, GAPS),
        duplicates=_number(fields, DUPLICATES),
        aggregate=pb.AggregatedTelemetry.FromString(fields.get(AGGREGATE.encode(), b"")),
    )


def encode(totals: Totals) -> dict[str, bytes]:
    """The fields that `decode` reads."""
    numbers = {
        COUNTED: totals.counted,
        REGIONAL: totals.regional,
        GLOBAL: totals.global_,
        SHED: totals.shed,
        GAPS: totals.gaps,
        DUPLICATES: totals.duplicates,
    }
    return {name: str(number).encode() for name, number in numbers.items()} | {
        AGGREGATE: totals.aggregate.SerializeToString()
    }


def _number(fields: Mapping[bytes, bytes], name: str) -> int:
    return int(fields.get(name.encode(), b"0"))
