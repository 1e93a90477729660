"""What a call costs with a long past behind it, beside what it costs with a short one."""

from __future__ import annotations

from collections.abc import Sequence

from bus_rows.session import Session
from report import quantile

SHORT = 10_000
LEVELS = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))


def measure(session: Session) -> None:
    for num in (SHORT, session.amounts.backlog):
        arm = f"{num:,} behind and pending"
        session.ask("backlog", "prepare", num=num)
        read = session.ask("backlog", "read_new")
        calls(session, "read new", arm, read["read"])
        calls(session, "settle", arm, read["settle"])
        session.tell("backlog:feeder", "feed")
        taken = session.ask("backlog", "reclaim", num=num)
        fed = int(session.answer("backlog:feeder"))
        passed(session, arm, taken, fed)
        for when, mib in (("before", read["memory"][0]), ("after", taken["memory"][1])):
            session.report.add("memory of the consumer", f"{arm}, {when}", "count", mib, "MiB", 1)
        session.ask("backlog", "forget")
    for row in ("read new", "settle", "reclaim, read", "reclaim, settle"):
        session.report.aim(row, "", "max", 5.0)
    session.report.aim("reclaim, whole pass", "", "count", 60.0)


def calls(session: Session, row: str, arm: str, taken_ms: Sequence[float]) -> None:
    for stat, level in LEVELS:
        session.report.add(row, arm, stat, quantile(taken_ms, level), "ms", len(taken_ms))


def passed(session: Session, arm: str, taken: dict[str, list[float]], fed: int) -> None:
    """A pass over what the dead consumer left. `fed`: entries added meanwhile, which are not to wait for its end."""
    calls(session, "reclaim, read", arm, taken["read"])
    calls(session, "reclaim, settle", arm, taken["settle"])
    seconds, num = float(str(taken["seconds"])), int(str(taken["num"]))
    session.report.add("reclaim, whole pass", arm, "count", seconds, "s", num)
    waited = taken["new_waited"]
    session.report.add("new, while reclaiming", f"{arm}, handled", "count", len(waited), f"of {fed}", fed)
    if waited:
        calls(session, "new, while reclaiming", arm, waited)
