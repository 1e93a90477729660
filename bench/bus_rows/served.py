"""Rows of the suite with a Redis of their own: a session for as long as one is measured, and what it found."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from bus_rows.session import Amounts, Session
from esper.bench.effort import Effort, Mode
from esper.bench.figures import Figure
from esper.bench.rounds.part import PartError
from esper.bench.row import Measurement
from esper.bench.timing.blame import ArmFailedError
from esper.bus.embedded import EmbeddedRedis
from esper.leyline.keys.keyring import MasterKeyring
from report import Report


def rows_of(
    family: str, measures: Mapping[str, Callable[[Session], None]], amounts: Mapping[Mode, Amounts]
) -> tuple[Measurement, ...]:
    """One row for each, named after the family; what each puts into its session's report is its figures."""
    named = {f"{family}-{name}": measure for name, measure in measures.items()}
    return tuple(
        Measurement(name, family, partial(measured, name, measure, amounts)) for name, measure in named.items()
    )


def measured(
    name: str, measure: Callable[[Session], None], amounts: Mapping[Mode, Amounts], effort: Effort
) -> Iterator[Figure]:
    """Raises ArmFailedError where an arm failed, once what the others came to is told."""
    with served(effort, amounts) as session:
        try:
            measure(session)
        except PartError as error:
            session.failed(name, "all", "", str(error))
    for figure in session.report.figures:
        yield replace(figure, row=f"{name}, {figure.row}")
    if session.failures:
        raise ArmFailedError(name, "an arm", "; ".join(session.failures))


@contextmanager
def served(effort: Effort, amounts: Mapping[Mode, Amounts]) -> Iterator[Session]:
    """A Redis, keys, and amounts by the effort."""
    with tempfile.TemporaryDirectory(prefix="bench-") as place, EmbeddedRedis(Path(place) / "redis") as server:
        MasterKeyring.new(time.time_ns()).save(Path(place) / "master.json")
        given, draw = amounts[effort.mode], random.Random(effort.seed)
        session = Session(server.url, Path(place), given, Report("bench"), draw)
        try:
            yield session
        finally:
            session.close()
