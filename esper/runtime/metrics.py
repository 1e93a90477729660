"""/metrics for Prometheus and /healthz for a supervisor. Healthy means progress: not that the process is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from esper.bus.inbox import Inbox
from esper.errors import SettingError
from esper.runtime.missing import Missing
from esper.runtime.refusals import Refusals
from esper.runtime.settings import Settings

STALE_S = 10.0
LONGEST_REQUEST_BYTES = 8192
REQUEST_S = 5.0

Clock: TypeAlias = Callable[[], float]


class Health:
    """When each source of progress last made some. Knows no sources by itself, and no HTTP."""

    def __init__(self, clock: Clock = time.monotonic, stale_s: float = STALE_S) -> None:
        self.clock, self.stale_s = clock, stale_s
        self.progress: dict[str, Callable[[], float]] = {}

    def watch(self, name: str, last_s: Callable[[], float]) -> None:
        """A source, by the time of its last progress on the same clock."""
        self.progress[name] = last_s

    def complaints(self) -> list[str]:
        """A sentence for each source that stands still; none: healthy."""
        now = self.clock()
        ages = {name: now - last_s() for name, last_s in self.progress.items()}
        return [f"{name}: no progress for {age:.1f} s" for name, age in ages.items() if age > self.stale_s]


def watch_inboxes(registry: CollectorRegistry, health: Health, inboxes: Sequence[Inbox]) -> None:
    """Show what inboxes count, and let health follow their polls."""
    since = Gauge("esper_seconds_since_poll", "Since the last good read", ("stream", "group"), registry=registry)
    registry.register(InboxCounters(inboxes))
    for inbox in inboxes:
        shown = since.labels(inbox.source.stream, inbox.source.group)
        shown.set_function(partial(lambda inbox: health.clock() - inbox.polled_at_s, inbox))
        health.watch(f"{inbox.source.stream} ({inbox.source.group})", partial(well_at_s, inbox, health.clock))


class InboxCounters(Collector):
    """What inboxes count by themselves."""

    def __init__(self, inboxes: Sequence[Inbox]) -> None:
        self.inboxes = inboxes

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What a scrape asks for."""
        counted: tuple[tuple[str, str, Callable[[Inbox], int]], ...] = (
            ("esper_history_lost", "Groups made again after they were lost", lambda inbox: inbox.num_history_lost),
            ("esper_entries_reclaimed", "From dead consumers", lambda inbox: inbox.pending.num_reclaimed),
            ("esper_entries_vanished", "Deleted while pending", lambda inbox: inbox.pending.num_vanished),
        )
        for name, text, read in counted:
            family = CounterMetricFamily(name, text, labels=("stream", "group"))
            for inbox in self.inboxes:
                family.add_metric(inbox.source[:2], read(inbox))
            yield family


class RefusalMetrics(Collector):
    """Shows what a process has refused; a reason appears with its first refusal."""

    def __init__(self, refusals: Refusals) -> None:
        self.refusals = refusals

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What a scrape asks for."""
        refused = CounterMetricFamily("esper_messages_refused", "By stream and reason", labels=("stream", "reason"))
        for labels, number in self.refusals.counts.items():
            refused.add_metric(labels, number)
        yield refused
        yield CounterMetricFamily(
            "esper_messages_refused_untold", "Without a letter or receipt, for a flood", value=self.refusals.num_untold
        )


class MissingMetrics(Collector):
    """How many messages a process has told as lost."""

    def __init__(self, missing: Missing) -> None:
        self.missing = missing

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily("esper_missing_messages", "Sequences skipped: acknowledged by Redis, then lost")
        family.add_metric((), self.missing.num_missing)
        yield family


def well_at_s(inbox: Inbox, clock: Clock) -> float:
    """When an inbox last read: or now, where it is held back on purpose."""
    return clock() if inbox.held_back else inbox.polled_at_s


def respond(path: str, registry: CollectorRegistry, health: Health) -> tuple[str, str, bytes]:
    """Status line, content type and body for a path."""
    match path:
        case "/metrics":
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
        case "/healthz":
            complaints = health.complaints()
            status = "503 Service Unavailable" if complaints else "200 OK"
            return status, "text/plain; charset=utf-8", ("\n".join(complaints or ["ok"]) + "\n").encode()
        case _:
            return "404 Not Found", "text/plain; charset=utf-8", b"only /metrics and /healthz are here\n"


@asynccontextmanager
async def endpoint(settings: Settings, registry: CollectorRegistry, health: Health) -> AsyncIterator[int]:
    """Serve both paths while the block runs; yields the port. Nothing listens where the setting is 0."""
    if settings.metrics_port == 0:
        yield 0
        return
    async with await listen(settings.metrics_host, settings.metrics_port, registry, health) as server:
        yield server.sockets[0].getsockname()[1]


async def listen(host: str, port: int, registry: CollectorRegistry, health: Health) -> asyncio.Server:
    """Bind and answer; port 0 takes a free one."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                await exchange(reader, writer, registry, health)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # a client's fault, and its loss
        finally:
            writer.close()

    try:
        return await asyncio.start_server(on_connection, host, port, limit=LONGEST_REQUEST_BYTES)
    except OSError as error:
        raise SettingError(
            "ESPER_METRICS_PORT", f"{host}:{port}", f"an address that is free ({error.strerror})"
        ) from error


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, registry: CollectorRegistry, health: Health
) -> None:
    """One request, one answer, and the connection ends."""
    request = await reader.readuntil(b"\r\n\r\n")
    parts = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    path = parts[1].partition("?")[0] if len(parts) > 1 else ""
    status, content_type, body = respond(path, registry, health)
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
