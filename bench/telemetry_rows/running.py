"""Both tiers at work in processes of their own, for as long as a row needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bus_rows.session import Session

TIERS = ("regional", "global")


@contextmanager
def tiers(session: Session, row: str) -> Iterator[None]:
    """For as long as the block runs; what the tiers used of the processor goes into the report."""
    session.ask("telemetry_arms.streams", "prepare")
    for tier in TIERS:
        session.tell(f"telemetry_arms.tiers:{tier}", "serve", tier=tier)
    yield
    session.ask("telemetry_arms.streams", "stop", num=len(TIERS))
    for tier in TIERS:
        used = float(session.answer(f"telemetry_arms.tiers:{tier}"))
        session.report.add(row, f"{tier} tier", "mean", used, "cores", 1)
