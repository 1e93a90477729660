"""What a live run should be like: its keys, and what waits in its streams. Rules over facts."""

from __future__ import annotations

from collections.abc import Sequence

from esper.bus.survey import Group, StreamView
from esper.runtime.findings import Finding, judged

PENDING_WARN_S = 60.0
LAG_WARN = 1_000


def stream_findings(views: Sequence[StreamView]) -> list[Finding]:
    """One for each group that is behind; else one for all."""
    groups = [(view.name, group) for view in views for group in view.groups]
    met = f"{len(groups)} groups of {len(views)} streams keep up"
    well = [judged("streams", met, "no group behind", "", "ok")]
    return [behind(name, group) for name, group in groups if is_behind(group)] or well


def is_behind(group: Group) -> bool:
    """More unread than can be counted at leisure, or something handed out long ago and never settled."""
    return group.lag is None or group.lag > LAG_WARN or group.oldest_pending_s > PENDING_WARN_S


def behind(name: str, group: Group) -> Finding:
    lag = f"more than {LAG_WARN}" if group.lag is None else group.lag
    return judged(
        f"stream {name}",
        f"{group.name}: {lag} unread, {group.pending} pending, the oldest for {group.oldest_pending_s:.0f} s",
        f"at most {LAG_WARN} unread, none pending for {PENDING_WARN_S:g} s",
        f"see that {group.name} runs and keeps up; one that is gone for good: esper streams forget {group.name}",
        "warn",
    )
