"""What earlier runs on an equal machine came to, as lines over time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from esper.bench.history.store import Entry, Session
from esper.bench.report.charts import Point
from esper.bench.report.sizes import STAT

MOST = 30
"""Runs that are drawn, the newest."""


def lines(row: str, shape: str, sessions: Sequence[Session]) -> dict[str, list[Point]]:
    """Medians by arm, one a run in which there is one; arms of a single run are left out. Runs that have the row lie
    evenly spaced."""
    recent = [session for session in sessions if any(_entries(row, shape, session))][-MOST:]
    found: dict[str, list[Point]] = {}
    for at, session in enumerate(recent):
        label = time.strftime("%m-%d %H:%M", time.gmtime(session.at_s)) if at in (0, len(recent) - 1) else ""
        for entry in _entries(row, shape, session):
            found.setdefault(entry.arm, []).append(Point(at, label, entry.value))
    return {arm: line for arm, line in found.items() if len(line) > 1}


def unit(row: str, shape: str, sessions: Sequence[Session]) -> str:
    """Of the newest run that has this row; empty where none has."""
    units = (entry.unit for session in reversed(sessions) for entry in _entries(row, shape, session))
    return next(units, "")


def _entries(row: str, shape: str, session: Session) -> Iterator[Entry]:
    return (entry for entry in session.entries if (entry.row, entry.shape, entry.stat) == (row, shape, STAT))
