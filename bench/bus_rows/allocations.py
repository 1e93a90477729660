"""Objects tracked by the garbage collector, per message received, beyond those that the client itself makes."""

from __future__ import annotations

from bus_rows.session import Session
from esper.bench.figures import Figure
from esper.bench.memory.tracking import per_item

FEW, MANY = 60, 240  # both less than a batch


def measure(session: Session) -> None:
    for what in ("packet", "command"):
        row = f"tracked objects, {what}"
        ours, bare = (per_message(session, arm, what) for arm in ("ours", "bare"))
        session.report.add(row, "ours", "count", ours, "a message", MANY - FEW)
        session.report.add(row, "bare", "count", bare, "a message", MANY - FEW)
        session.report.put(Figure(row, "beyond the client", "count", ours - bare, "a message", MANY - FEW, "derived"))
        session.report.aim(row, "beyond the client", "count", 4.0)


def per_message(session: Session, arm: str, what: str) -> float:
    return per_item(lambda num: int(session.ask("tracked", arm, what=what, num=num)), FEW, MANY)
