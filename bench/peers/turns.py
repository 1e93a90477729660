"""What rows beside peers share: a Redis and processes of their own, slices in turns, and arms that are not there."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bus_arms.arm import ArmError
from bus_rows.session import FULL, QUICK, Amounts, Session
from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.row import Comparison
from esper.bus.embedded import EmbeddedRedis
from esper.leyline.keyring import MasterKeyring
from report import Report


@contextmanager
def served(effort: Effort) -> Iterator[Session]:
    """A Redis of its own, keys, and amounts by the effort."""
    amounts: Amounts = {
        "quick": replace(QUICK, seconds=1.5),
        "gate": replace(QUICK, num=10_000, rounds=6, seconds=6.0),
        "full": replace(FULL, seconds=30.0),
    }[effort.mode]
    with tempfile.TemporaryDirectory(prefix="bench-") as place, EmbeddedRedis(Path(place) / "redis") as server:
        MasterKeyring.new(time.time_ns()).save(Path(place) / "master.json")
        session = Session(server.url, Path(place), amounts, Report("peers"), random.Random(effort.seed))
        try:
            yield session
        finally:
            session.close()


def in_turns(name: str, ways: Mapping[str, Callable[[], list[float]]], session: Session) -> dict[str, list[float]]:
    """Slices in an order drawn anew each round; the first round only shows that it works."""
    left, samples = dict(ways), {arm: list[float]() for arm in ways}
    for at in range(session.amounts.rounds + 1):
        for arm in session.order.sample(list(left), len(left)):
            try:
                samples[arm] += left[arm]() if at else left[arm]()[:0]
            except ArmError as error:
                session.failed(name, arm, "ms", error)
                del left[arm], samples[arm]
    return samples


def failures(session: Session) -> dict[str, str]:
    """Why arms took no further part, by name."""
    return {str(line["arm"]): str(line["label"]) for line in session.report.lines if line["value"] is None}


def absent(row: Comparison, labels: Mapping[str, str]) -> Iterator[Figure]:
    """A figure for each arm without one, whose label says why."""
    for arm, label in labels.items():
        yield Figure(row.name, arm, "p50", None, row.unit, label=label, shape=row.shape)
