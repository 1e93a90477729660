"""What every process does beside its work: shows what it counts, and keeps its part of the bus in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from prometheus_client import CollectorRegistry

from esper.bus.durability import announce
from esper.bus.inbox import Inbox
from esper.runtime import metrics
from esper.runtime.archive import Archive
from esper.runtime.figures import Repeats, StreamGauges
from esper.runtime.refusals import Refusals
from esper.runtime.settings import Settings
from esper.runtime.tidying import Charge, kept_tidy
from esper.runtime.trimming import Trimmer


@dataclass(frozen=True, slots=True)
class Duties:
    """What differs between roles: plain streams that it bounds, what it counts as met before, whether it surveys."""

    retained: Sequence[str] = ()
    repeats: Mapping[str, Callable[[], int]] = field(default_factory=dict)
    surveys: bool = False
    archive: Path | None = None  # where logs go before they are trimmed; none: they are kept whole


@asynccontextmanager
async def kept_up(
    chosen: Settings, run_id: str, inboxes: Sequence[Inbox], refusals: Refusals, duties: Duties | None = None
) -> AsyncIterator[CollectorRegistry]:
    """Metrics, health and order, while the block runs; before it, the line that says what this server promises."""
    registry, health, duties = CollectorRegistry(), metrics.Health(), duties or Duties()
    metrics.watch_inboxes(registry, health, inboxes)
    registry.register(metrics.RefusalMetrics(refusals))
    registry.register(Repeats(duties.repeats))
    charge = Charge(
        run_id,
        f"{chosen.name}-{token_hex(4)}",
        inboxes[0].writer,
        registry,
        inboxes,
        duties.retained,
        StreamGauges(registry) if duties.surveys else None,
        None if duties.archive is None else Trimmer(inboxes[0].writer, run_id, Archive(duties.archive)),
    )
    async with metrics.endpoint(chosen, registry, health):
        await announce(charge.redis, chosen.durability)  # once bound: a start that fails says so in one line
        async with kept_tidy(charge):
            yield registry
