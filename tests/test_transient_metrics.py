"""A metric that passes is told in each aggregate, and uses up none of the names that a run's totals have."""

from __future__ import annotations

import pytest

from esper.leyline import contracts as pb
from esper.narset.global_ import Global
from esper.narset.reduction import MAX_METRICS
from esper.narset.running import Running
from esper.narset.statistics import Origin, Statistics
from esper.narset.totals import decode


def aggregate(sequence: int, *names: str) -> pb.AggregatedTelemetry:
    found = pb.AggregatedTelemetry(version=1, region="north", sequence=sequence, num_packets=1, num_messages=1)
    for name in names:
        one = Statistics()
        one.add(1.0, Origin(1, "worker-0", sequence))
        found.metrics[name].CopyFrom(one.message())
    return found


def test_totals_have_room_for_a_runs_own_metrics_however_many_have_passed() -> None:
    tier = Global(["north"])
    tier.on_aggregate(aggregate(1, *(f"~load.{number}" for number in range(MAX_METRICS))), 0.0)
    [told] = tier.take(0.0)
    tier.on_aggregate(aggregate(2, "loss"), 0.0)
    tier.take(0.0)

    total = decode({name.encode(): value for name, value in tier.changed().items()})

    assert len(told.metrics) == MAX_METRICS
    assert (list(total.aggregate.metrics), total.counted) == (["loss"], 2)


@pytest.mark.parametrize("name", ["~load.ab12", "~"])
def test_what_is_scraped_keeps_no_series_of_a_metric_that_passes(name: str) -> None:
    figures = Running()

    figures.add(aggregate(1, "loss", name))

    assert (list(figures.series), figures.packets["packets"]) == (["loss"], 1)
