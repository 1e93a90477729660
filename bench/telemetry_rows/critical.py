"""From a critical packet to its subscriber while both tiers have more to fold than they can."""

from __future__ import annotations

from bus_rows.session import Session
from report import quantile
from telemetry_rows.running import tiers

PER_S, CRITICAL_PER_S = 200_000, 50
ROW = "critical packet to subscriber, tiers saturated"
LEAD_S = 1.0


def measure(session: Session) -> None:
    seconds = session.amounts.seconds / 2
    num = int(seconds * CRITICAL_PER_S)
    with tiers(session, ROW):
        session.tell("telemetry_arms.flow:made", "send_made", per_s=PER_S, seconds=seconds + LEAD_S)
        session.tell("telemetry_arms.flow:watch", "watch_critical", num=num, seconds=2 * seconds + 6.0)
        session.ask("telemetry_arms.flow:send", "send_critical", num=num, seconds=2 * seconds)
        taken = [float(each) for each in session.answer("telemetry_arms.flow:watch", "watch_critical")]
        session.answer("telemetry_arms.flow:made", "send_made")
    for stat, level in (("p50", 0.5), ("p99", 0.99)):
        session.report.add(ROW, "ours", stat, quantile(taken, level), "ms", len(taken))
    session.report.aim(ROW, "ours", "p99", 10.0)
