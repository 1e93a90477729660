"""What an aggregator folds, counted as its windows close."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from esper.leyline import contracts as pb
from esper.runtime.operations.catalogue import counter
from esper.runtime.operations.figures import counted


class TierFigures(Collector):
    """Windows that are folded again, as another had settled first, count again."""

    def __init__(self) -> None:
        self.num_full = self.num_partial = self.num_packets = 0

    def note(self, aggregates: Sequence[pb.AggregatedTelemetry]) -> None:
        for aggregate in aggregates:
            self.num_partial += aggregate.partial
            self.num_full += not aggregate.partial
            self.num_packets += aggregate.num_packets

    def collect(self) -> Iterator[Metric]:
        """What a scrape asks for."""
        aggregates = counter("esper_aggregates_total")
        aggregates.add_metric(("true",), self.num_full)
        aggregates.add_metric(("false",), self.num_partial)
        yield from (aggregates, counted("esper_aggregated_packets_total", self.num_packets))
