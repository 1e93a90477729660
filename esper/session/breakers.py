"""Tells of a rank's breaker that opens, and of memory that runs short: in the log and the next packet."""

from __future__ import annotations

import structlog

from esper.kasmina.breaker import BREAKERS
from esper.kernels.budget import Budget
from esper.leyline import contracts as pb
from esper.tolaria.rows.rows import Rows

log = structlog.get_logger()


def tell_opened(rows: Rows, name: str) -> None:
    """What it keeps from happening is decided for all ranks, by who asks it."""
    settings = BREAKERS[name]
    reason = f"the {name} breaker is open after {settings.threshold} failures, for {settings.open_s:g} s"
    told = {"breaker": name, "reason": reason, "open_s": f"{settings.open_s:g}"}
    rows.note(pb.TelemetryLevel.TELEMETRY_CRITICAL, "breaker.opened", **told)
    log.error("breaker.opened", breaker=name, reason=reason)


def tell_filling(rows: Rows, budget: Budget) -> None:
    """From 90 % on it empties its pools; what does not fit at all is refused."""
    told = {"used_bytes": str(budget.used_bytes), "limit_bytes": str(budget.limit_bytes)}
    rows.note(pb.TelemetryLevel.TELEMETRY_WARNING, "memory.filling", **told)
    log.warning("memory.filling", **told)
