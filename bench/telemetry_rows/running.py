"""Both tiers at work in processes of their own, for as long as a row needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bus_rows.session import Session

TIERS = "telemetry_arms.tiers"


@contextmanager
def tiers(session: Session, seconds: float) -> Iterator[None]:
    """The block is to end before these seconds do; what the tiers used of the processor goes into the report."""
    session.ask("telemetry_arms.streams", "prepare")
    for tier in ("regional", "global"):
        session.tell(f"{TIERS}:{tier}", "serve", tier=tier, seconds=seconds)
    yield
    for tier in ("regional", "global"):
        used_s = float(session.answer(f"{TIERS}:{tier}", "serve"))
        session.report.add("processor", f"{tier} tier", "mean", used_s / seconds, "cores", 1)
