"""When a round ends on which not all have voted, and why."""

from __future__ import annotations

from typing import NamedTuple

from esper.leyline import contracts as pb
from esper.tamiyo.barrier import Barrier
from esper.tamiyo.roster import Roster

SILENCE_NS = 5_000_000_000
STUCK_NS = 1_000_000_000
"""The same where a rank of a group waits for the decision: others may wait for it, in a step that they have begun."""
FAREWELL_NS = 1_000_000_000
"""Ranks that end together say so this much apart; then nobody waits for the open round, and it is let go."""
ROUND_NS = 20_000_000_000
"""A round ends by then, come what may: a rank that has voted waits for its decision for 30 s, then raises."""


class Overdue(NamedTuple):
    """What its abort says."""

    reason: pb.ReasonCode
    detail: str
    unheeded: bool = False
    """Nobody has voted, though all speak: as where Redis fell back, and they have met later rounds or rosters."""


def overdue(barrier: Barrier, roster: Roster, now_ns: int) -> Overdue | None:
    """Why the open round can't be completed, or need not be waited for any longer; None: it may be yet."""
    departed = roster.departed
    gone = [member.worker for member in departed if member.worker in barrier.missing]
    silence_ns = STUCK_NS if roster.any_at(barrier.held_before) else SILENCE_NS
    silent = roster.silent(barrier.missing, barrier.proposed_ns, silence_ns, now_ns)
    if gone and now_ns - max(member.heard_ns for member in departed) >= FAREWELL_NS:
        return Overdue(pb.ReasonCode.REASON_ROSTER_CHANGED, f"{', '.join(gone)} left the run")
    if silent:
        return Overdue(pb.ReasonCode.REASON_TIMEOUT, f"{', '.join(silent)} said nothing for {silence_ns / 1e9:g} s")
    if now_ns - barrier.proposed_ns >= ROUND_NS:
        detail = f"no vote of {', '.join(barrier.missing)} within {ROUND_NS / 1e9:g} s"
        return Overdue(pb.ReasonCode.REASON_TIMEOUT, detail, not (barrier.num_counted or roster.any_away))
    return None
