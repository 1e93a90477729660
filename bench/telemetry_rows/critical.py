"""From a critical packet to its subscriber while both tiers have more to fold than they can."""

from __future__ import annotations

from bus_rows.session import Session
from telemetry_rows.running import tiers

PER_S, CRITICAL_PER_S = 200_000, 100
ROW = "critical packet to subscriber, tiers saturated"
LEAD_S, SLICE_S = 1.0, 1.5
NUM_BEHIND = 1_000
"""Frames that the regional tier has not read when the first critical packet is sent."""
STREAMS, URGENT, MADE = "telemetry_arms.streams", "telemetry_arms.urgent", "telemetry_arms.flow:made"
WATCHERS = {"ours": "watch", "bare": "bare_watch"}


def measure(session: Session) -> None:
    """In slices, as what saturates the tiers is sealed before, and no seal may be old when it is read."""
    num_slices = max(1, round(session.amounts.seconds / 2 / SLICE_S))
    taken: dict[str, list[float]] = {arm: [] for arm in WATCHERS}
    left = list[int]()
    with tiers(session, ROW):
        before = int(session.ask(STREAMS, "server_forks"))
        for at in range(num_slices):
            left.append(one_slice(session, at, taken))
        rewrites = int(session.ask(STREAMS, "server_forks")) - before
    session.report.add_arms(ROW, taken, "ms")
    session.report.add(ROW, "unread frames after each slice, fewest", "count", min(left), "frames", num_slices)
    session.report.add(ROW, "rewrites of the server's log meanwhile", "count", rewrites, "forks", num_slices)
    session.report.aim(ROW, "ours", "p99", 10.0)


def one_slice(session: Session, at: int, taken: dict[str, list[float]]) -> int:
    """What each arm took is added to `taken`; how many frames the tiers had not read at the end."""
    num = int(SLICE_S * CRITICAL_PER_S)
    session.ask(MADE, "make", per_s=PER_S, seconds=SLICE_S + LEAD_S, incarnation=at + 1)
    session.ask(URGENT, "prepare")
    for arm, call in WATCHERS.items():
        session.tell(f"{URGENT}:watch {arm}", call, num=num, seconds=SLICE_S + LEAD_S)
    session.ask(f"{URGENT}:send ours", "watched", num=len(WATCHERS))
    session.ask(f"{URGENT}:send bare", "watched", num=len(WATCHERS))
    session.tell(MADE, "send_made", per_s=PER_S)
    session.ask(STREAMS, "behind", num=NUM_BEHIND, patience_s=LEAD_S)
    session.tell(f"{URGENT}:send ours", "send", num=num, seconds=SLICE_S, first=at * num + 1)
    session.tell(f"{URGENT}:send bare", "bare_send", num=num, seconds=SLICE_S)
    for arm in WATCHERS:
        session.answer(f"{URGENT}:send {arm}")
        taken[arm] += [float(each) for each in session.answer(f"{URGENT}:watch {arm}")]
    left = int(session.ask(STREAMS, "unread"))
    session.answer(MADE)
    return left
