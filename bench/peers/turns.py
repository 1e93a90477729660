"""What rows beside peers share: amounts, slices in turns, and arms that are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from bus_rows.session import AMOUNTS, FULL, QUICK, Amounts, Session
from esper.bench.effort import Mode
from esper.bench.figures import Figure
from esper.bench.rounds.part import PartError
from esper.bench.row import Comparison

PEERS_AMOUNTS: Mapping[Mode, Amounts] = {
    "quick": replace(QUICK, seconds=1.5),
    "gate": AMOUNTS["gate"],
    "full": replace(FULL, seconds=30.0),
}


def in_turns(name: str, ways: Mapping[str, Callable[[], list[float]]], session: Session) -> dict[str, list[float]]:
    """Slices in an order drawn anew each round; the first round only shows that it works."""
    left, samples = dict(ways), {arm: list[float]() for arm in ways}
    for at in range(session.amounts.rounds + 1):
        for arm in session.order.sample(list(left), len(left)):
            try:
                samples[arm] += left[arm]() if at else left[arm]()[:0]
            except PartError as error:
                session.failed(name, arm, "ms", error)
                del left[arm], samples[arm]
    return samples


def failures(session: Session) -> dict[str, str]:
    """Why arms took no further part, by name."""
    return {figure.arm: figure.label for figure in session.report.figures if figure.value is None}


def absent(row: Comparison, labels: Mapping[str, str]) -> Iterator[Figure]:
    """A figure for each arm without one, whose label says why."""
    for arm, label in labels.items():
        yield Figure(row.name, arm, "p50", None, row.unit, label=label, shape=row.shape)
