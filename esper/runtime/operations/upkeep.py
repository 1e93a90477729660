"""What every process does beside its work: shows what it counts, and keeps its part of the bus in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_hex

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.registry import Collector

from esper.bus.connect import ServerClock
from esper.bus.durability import announce
from esper.bus.group.inbox import Inbox
from esper.bus.outage import Outage
from esper.runtime import notify
from esper.runtime.access import Access
from esper.runtime.ending import meanwhile
from esper.runtime.operations import metrics
from esper.runtime.operations.figures import HealthMetrics, RefusalMetrics, Repeats, StreamGauges, watch_inboxes
from esper.runtime.operations.health import Health
from esper.runtime.operations.tidying import StreamUpkeep, look_again
from esper.runtime.operations.trimming import Trimmer
from esper.runtime.operations.vitals import seen
from esper.runtime.serving.refusals import Refusals
from esper.runtime.settings import Settings

REGIONAL = ("regional", "runtime")


@dataclass(frozen=True, slots=True)
class RoleDuties:
    """What differs between roles: plain streams that it bounds, what it counts as met before, whether it surveys."""

    retained: Sequence[str] = ()
    repeats: Mapping[str, Callable[[], int]] = field(default_factory=dict)
    surveys: bool = False
    logs: Trimmer | None = None  # archives them, then trims them; none: they are kept whole
    shows: Sequence[Collector] = ()  # what only this role counts
    clock: ServerClock | None = None  # what it seals by


class HealthEndpoint:
    """One process at its place in a run: what it shows at /metrics, and its health. Nothing is looked at yet."""

    def __init__(self, role: str, chosen: Settings, found: Access) -> None:
        self.chosen, self.found = chosen, found
        region = chosen.region if role in REGIONAL else ""
        self.health = Health({"role": role, "name": chosen.name, "run": found.run_id, "region": region})
        self.health.keys = lambda: found.keyring.validities
        self.registry = CollectorRegistry()
        self._answers = chosen.metrics_port == 0
        self._tell_ready = notify.ready if role != "runtime" else lambda: None  # attach() does, once it has joined
        ProcessCollector(registry=self.registry)
        self.registry.register(HealthMetrics(self.health))

    @asynccontextmanager
    async def answering(self, outage: Outage | None = None, clock: ServerClock | None = None) -> AsyncIterator[None]:
        """Tell whoever has started it that it is ready, and answer it and Prometheus while the outermost block runs;
        where nobody can ask, look at nothing.

        `outage` is of the writer that this process works with, `clock` what it goes by.
        """
        if self._answers:
            self._tell_ready()
            yield
            return
        self._answers = True
        async with (
            seen(self.found.redis_url, self.health, outage, clock),
            metrics.endpoint(self.chosen, self.registry, self.health),
        ):
            self._tell_ready()
            yield


@asynccontextmanager
async def kept_up(
    endpoint: HealthEndpoint, inboxes: Sequence[Inbox], refusals: Refusals, duties: RoleDuties | None = None
) -> AsyncIterator[None]:
    """Metrics, health and order, while the block runs; before it, the line that says what this server promises."""
    duties, writer, registry = duties or RoleDuties(), inboxes[0].writer, endpoint.registry
    watch_inboxes(registry, endpoint.health, inboxes)
    registry.register(RefusalMetrics(refusals))
    for collector in (Repeats(duties.repeats), *duties.shows):
        registry.register(collector)
    upkeep = StreamUpkeep(
        endpoint.found.run_id,
        f"{endpoint.chosen.name}-{token_hex(4)}",
        writer,
        registry,
        inboxes,
        duties.retained,
        StreamGauges(registry) if duties.surveys else None,
        duties.logs,
    )
    async with endpoint.answering(writer.outage, duties.clock):
        await announce(upkeep.redis, endpoint.chosen.durability)  # once bound: a start that fails says so in one line
        async with meanwhile(look_again(upkeep)):
            yield
