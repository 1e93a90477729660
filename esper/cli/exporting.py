"""The parts of an exporter, put together: for `esper export`, and for the worker that does the same."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from esper.bus import connect, names, tail
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain
from esper.leyline.seal import Opened, Opener
from esper.narset import records, running, totals
from esper.narset.sketch import read_sketch
from esper.narset.units import in_base_unit, split_labels
from esper.runtime.access import Access
from esper.runtime.exporters.exposition import Exposed, Exposition, Kept, kept
from esper.runtime.exporters.files import held
from esper.runtime.exporters.lines import MOST_BYTES, NUM_KEPT, JsonLines
from esper.runtime.exporters.loop import NOTHING, Export, Sink
from esper.runtime.operations.figures import counted
from esper.runtime.operations.health import Health
from esper.runtime.timekeeping import kept_right

FileKind: TypeAlias = Literal["tensorboard", "jsonl"]


@asynccontextmanager
async def exporting(found: Access, sink: Sink) -> AsyncIterator[Export]:
    """An exporter of the run's global tier, ready to run; its keys follow their file."""
    stream, opener = names.key(found.run_id, "global"), Opener(found.keyring, guard=None, accept={Domain.AGGREGATE})
    clock = connect.ServerClock(stream)
    async with connect.reader(found.redis_url) as reader, connect.writer(found.redis_url) as writer:
        await clock.look(writer)
        async with kept_right(clock, writer), found.kept_current():
            yield Export(reader, stream, lambda sealed, at: readable(opener.open(sealed, at, clock.now_ms())), sink)


def readable(opened: Opened) -> Opened:
    """What a sink can take in whole. RefusedError where a sketch cannot be read: a seal says who wrote it, no more."""
    if isinstance(opened.message, pb.AggregatedTelemetry):
        for statistics in opened.message.metrics.values():
            read_sketch(statistics.sketch)
    return opened


@contextmanager
def into_files(
    kind: FileKind, path: Path, run_id: str, *, most_bytes: int = MOST_BYTES, num_kept: int = NUM_KEPT
) -> Iterator[Sink]:
    """A file of JSON lines; or event files in a folder of the run's below `path`. No second exporter writes there."""
    if kind == "jsonl":
        with held(path.parent, path.name):
            yield JsonLines(path, records.record, most_bytes, num_kept)
        return
    from esper.runtime.exporters.events import EventFiles  # its library is an extra

    with held(path / run_id, "events"):
        yield EventFiles(path / run_id, running.bins)


@asynccontextmanager
async def for_scrapes(found: Access, bounds: tuple[float, ...], name: str) -> AsyncIterator[Exposition]:
    """Goes on from what an exporter of this name has left; the first one begins with the run's total."""
    record = names.key(found.run_id, f"exported:{name}")
    async with connect.writer(found.redis_url) as writer:
        left = await kept(writer, record)
        figures = running.Running(bounds) if left is None else running.load(left.figures)
        if left is None or figures.bounds != bounds:
            position = await tail.newest_id(writer, names.key(found.run_id, "global"))  # first: the total holds it then
            fields: Any = await writer.hgetall(names.key(found.run_id, "totals"))
            total = totals.decode(fields).aggregate
            figures = running.Running(bounds)
            figures.add(total)
            left = Kept(position if total.sequence else NOTHING, b"", total.sequence)
        sink = Exposition(writer, record, figures, left)
        await sink.keep()
        yield sink


def follow(export: Export, run_id: str, registry: CollectorRegistry, health: Health) -> None:
    """Show what the exporter counts, and what it has folded where it is one for scrapes; it is well while it reads."""
    export.polled_at_s = time.monotonic()
    health.watch("global", lambda: export.polled_at_s)
    registry.register(Carried(export))
    if isinstance(export.sink, Exposition):
        registry.register(Exposed(export.sink.figures, run_id, named))


def named(metric: str) -> tuple[str, Mapping[str, str]]:
    """Its own name in its base unit, and its labels."""
    own, labels = split_labels(metric)
    return in_base_unit(own)[0], labels


class Carried(Collector):
    """What an exporter counts by itself, since it was started."""

    def __init__(self, export: Export) -> None:
        self.export = export

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What a scrape asks for."""
        yield counted("esper_export_aggregates_written_total", self.export.num_written)
        yield counted("esper_export_aggregates_refused_total", self.export.num_refused)
        yield counted("esper_export_aggregates_missing_total", self.export.num_missing)
