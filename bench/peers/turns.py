"""What rows beside peers share: amounts, and arms that are not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bus_rows.session import AMOUNTS, FULL, QUICK, Amounts, Session
from esper.bench.effort import Mode
from esper.bench.figures import Figure
from esper.bench.row import Comparison

PEERS_AMOUNTS: Mapping[Mode, Amounts] = {
    "quick": replace(QUICK, seconds=1.5),
    "gate": AMOUNTS["gate"],
    "full": replace(FULL, seconds=30.0),
}


def failures(session: Session) -> dict[str, str]:
    """Why arms took no further part, by name."""
    return {figure.arm: figure.label for figure in session.report.figures if figure.value is None}


def absent(row: Comparison, labels: Mapping[str, str]) -> Iterator[Figure]:
    """A figure for each arm without one, whose label says why."""
    for arm, label in labels.items():
        yield Figure(row.name, arm, "p50", None, row.unit, label=label, shape=row.shape)
