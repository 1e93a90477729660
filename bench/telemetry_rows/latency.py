"""From XADD to the global summary, at 10,000 packets a second."""

from __future__ import annotations

from bus_rows.session import Session
from telemetry_rows.running import tiers

PER_S = 10_000
ROW = "XADD to global, oldest packet of each aggregate"


def measure(session: Session) -> None:
    seconds = session.amounts.seconds
    with tiers(session, ROW):
        session.tell("telemetry_arms.flow:watch", "watch_global", seconds=seconds + 1.0)
        num = int(session.ask("telemetry_arms.flow:send", "send_frames", per_s=PER_S, seconds=seconds))
        taken = [float(each) for each in session.answer("telemetry_arms.flow:watch")]
    session.report.add(ROW, "sent", "rate", num / seconds, "packets/s", num)
    session.report.add_arms(ROW, {"ours": taken}, "ms")
    session.report.aim(ROW, "ours", "p99", 50.0)
