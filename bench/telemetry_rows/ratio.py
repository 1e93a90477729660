"""How many packets become one global aggregate at 100,000 packets a second, and how many of them are counted."""

from __future__ import annotations

from bus_rows.session import Session
from telemetry_rows.running import tiers

PER_S = 100_000
PATIENCE_S = 20.0
MADE = "telemetry_arms.flow:made"
ROW = "reduction at 100,000 packets/s"


def measure(session: Session) -> None:
    seconds = session.amounts.seconds / 2
    with tiers(session, ROW):
        session.ask(MADE, "make", per_s=PER_S, seconds=seconds)
        num = int(session.ask(MADE, "send_made", per_s=PER_S))
        late_s = float(session.ask("telemetry_arms.streams", "counted", num=num, patience_s=PATIENCE_S))
    counted, regional, global_ = (int(each) for each in session.ask("telemetry_arms.streams", "reached"))
    session.report.add(ROW, "sent", "count", num, "packets", 1)
    session.report.add(ROW, "counted", "count", counted, "packets", 1)
    session.report.add(ROW, "counted after the last was sent", "mean", late_s, "s", 1)
    session.report.add(ROW, "tier 1", "mean", counted / regional, "packets an aggregate", regional)
    session.report.add(ROW, "both tiers", "mean", counted / global_, "packets an aggregate", global_)
    session.report.aim(ROW, "both tiers", "mean", 1024.0, higher=True)
