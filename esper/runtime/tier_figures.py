"""What an aggregator folds, counted as its windows close: a rule around the rule, which changes none of its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from esper.leyline import contracts as pb
from esper.runtime.aggregate import State, Tier
from esper.runtime.catalogue import counter
from esper.runtime.figures import counted


class CountedTier(Collector):
    """Answers as the tier within does. Windows that are folded again, as another had settled first, count again."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.num_full = self.num_partial = self.num_packets = 0

    @property
    def state(self) -> State:
        return self.tier.state

    def load(self, fields: Mapping[bytes, bytes]) -> None:
        self.tier.load(fields)

    def wait_s(self, now_s: float) -> float | None:
        return self.tier.wait_s(now_s)

    def take(self, now_s: float) -> list[pb.AggregatedTelemetry]:
        taken = self.tier.take(now_s)
        for aggregate in taken:
            self.num_partial += aggregate.partial
            self.num_full += not aggregate.partial
            self.num_packets += aggregate.num_packets
        return taken

    def changed(self) -> dict[str, bytes]:
        return self.tier.changed()

    def collect(self) -> Iterator[Metric]:
        """What a scrape asks for."""
        aggregates = counter("esper_aggregates_total")
        aggregates.add_metric(("true",), self.num_full)
        aggregates.add_metric(("false",), self.num_partial)
        yield from (aggregates, counted("esper_aggregated_packets_total", self.num_packets))
