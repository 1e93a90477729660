"""From XADD to the global summary, at 10,000 packets a second; and what becomes one, as windows close by time."""

from __future__ import annotations

from bus_rows.session import Session
from telemetry_rows.running import tiers

PER_S = 10_000
PATIENCE_S = 20.0
ROW = "XADD to global, oldest packet of each aggregate"


def measure(session: Session) -> None:
    seconds = session.amounts.seconds
    with tiers(session, ROW):
        session.tell("telemetry_arms.flow:watch", "watch_global", seconds=seconds + 1.0)
        num = int(session.ask("telemetry_arms.flow:send", "send_frames", per_s=PER_S, seconds=seconds))
        taken = [float(each) for each in session.answer("telemetry_arms.flow:watch")]
        session.ask("telemetry_arms.streams", "counted", num=num, patience_s=PATIENCE_S)
    counted, regional, global_ = (int(each) for each in session.ask("telemetry_arms.streams", "reached"))
    session.report.add(ROW, "sent", "rate", num / seconds, "packets/s", num)
    session.report.add(ROW, "counted", "count", counted, "packets", 1)
    session.report.add(ROW, "tier 1", "mean", counted / regional, "packets an aggregate", regional)
    session.report.add(ROW, "both tiers", "mean", counted / global_, "packets an aggregate", global_)
    session.report.add_arms(ROW, {"ours": taken}, "ms")
    session.report.aim(ROW, "ours", "p99", 50.0)
