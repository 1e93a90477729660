"""Tier 2 folds regional aggregates 32:1, each once, and keeps the running total."""

from __future__ import annotations

import numpy as np
import pytest

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.narset.global_ import Global
from esper.narset.reduction import MAX_BYTES
from esper.narset.statistics import Origin, Statistics, of_values
from esper.narset.totals import decode


def regional(sequence: int, region: str = "north") -> pb.AggregatedTelemetry:
    """Two packets with losses equal to the sequence and to its double."""
    loss = Statistics()
    loss.add(float(sequence), Origin(10 * sequence, "worker-0", 2 * sequence - 1))
    loss.add(2.0 * sequence, Origin(10 * sequence + 1, "worker-0", 2 * sequence))
    return pb.AggregatedTelemetry(
        version=1,
        region=region,
        sequence=sequence,
        num_packets=2,
        num_messages=1,
        first_timestamp_ns=10 * sequence,
        last_timestamp_ns=10 * sequence + 1,
        max_step=sequence,
        metrics={"loss": loss.message()},
        num_duplicates=1,
        num_gaps=2,
        num_shed=3,
        level_counts={"INFO": 2},
    )


def put_on_record(tier: Global) -> dict[bytes, bytes]:
    return {name.encode(): value for name, value in tier.changed().items()}


def test_thirty_two_aggregates_of_all_regions_become_one() -> None:
    tier = Global(["north", "south"])

    for sequence in range(1, 17):
        tier.on_aggregate(regional(sequence, "north"), 0.0)
        tier.on_aggregate(regional(sequence, "south"), 0.0)
    assert tier.wait_s(0.0) == 0
    [aggregate] = tier.take(0.0)

    assert (aggregate.region, aggregate.sequence, aggregate.partial) == ("", 1, False)
    assert (aggregate.num_packets, aggregate.num_messages) == (64, 32)
    assert (aggregate.num_duplicates, aggregate.num_gaps, aggregate.num_shed) == (32, 64, 96)
    assert (aggregate.first_timestamp_ns, aggregate.last_timestamp_ns, aggregate.max_step) == (10, 161, 16)
    assert aggregate.metrics["loss"].sum == 2 * sum(3 * sequence for sequence in range(1, 17))
    assert dict(aggregate.level_counts) == {"INFO": 64}


def test_an_aggregate_met_before_is_left_out_whatever_the_order() -> None:
    tier = Global(["north"])

    for sequence in (2, 1, 2, 3, 1):
        tier.on_aggregate(regional(sequence), 0.0)
    [aggregate] = tier.take(0.0)

    assert (aggregate.num_messages, aggregate.metrics["loss"].sum) == (3, 3.0 + 6.0 + 9.0)


def test_a_late_number_is_still_folded_after_higher_ones_were_settled() -> None:
    tier = Global(["north"])
    tier.on_aggregate(regional(5), 0.0)
    tier.take(0.0)
    restarted = Global(["north"])
    restarted.load(put_on_record(tier))

    restarted.on_aggregate(regional(5), 0.0)
    restarted.on_aggregate(regional(4), 0.0)

    assert [aggregate.num_messages for aggregate in restarted.take(0.0)] == [1]


def test_the_total_goes_on_across_a_restart() -> None:
    before, after = Global(["north"]), Global(["north"])
    before.on_aggregate(regional(1), 0.0)
    before.take(0.0)

    after.load(put_on_record(before))
    after.on_aggregate(regional(2), 0.0)
    [aggregate] = after.take(0.0)
    found = decode(put_on_record(after))

    assert aggregate.sequence == 2
    assert (found.counted, found.regional, found.global_) == (4, 2, 2)
    assert (found.shed, found.gaps, found.duplicates) == (6, 4, 2)
    loss = found.aggregate.metrics["loss"]
    assert (loss.count, loss.sum, loss.min, loss.max, loss.last) == (4, 9.0, 1.0, 4.0, 4.0)


def test_the_totals_of_a_run_without_any_are_zero() -> None:
    found = decode({})

    assert (found.counted, found.global_, found.aggregate) == (0, 0, pb.AggregatedTelemetry())


def test_an_aggregate_of_a_strange_region_is_refused() -> None:
    tier = Global(["north"])

    with pytest.raises(RefusedError, match="'west'; expected one of north"):
        tier.on_aggregate(regional(1, "west"), 0.0)


def test_an_aggregate_with_a_broken_sketch_is_refused_and_its_number_stays_free() -> None:
    tier = Global(["north"])
    broken = regional(1)
    broken.metrics["loss"].sketch = b"broken"

    with pytest.raises(RefusedError, match="sketch"):
        tier.on_aggregate(broken, 0.0)
    tier.on_aggregate(regional(1), 0.0)

    assert [aggregate.num_messages for aggregate in tier.take(0.0)] == [1]


def test_an_aggregate_too_large_for_an_envelope_goes_out_without_sketches() -> None:
    tier = Global(["north"])
    wide = regional(1)
    many = of_values(np.arange(300.0), [Origin(1, "worker-0", 1)] * 300).message()
    for index in range(1000):
        wide.metrics[f"metric-{index}"].CopyFrom(many)

    tier.on_aggregate(wide, 0.0)
    [aggregate] = tier.take(0.0)

    assert aggregate.ByteSize() < MAX_BYTES
    assert aggregate.metrics["loss"].sketch == b""
    assert aggregate.metrics["metric-999"].sum == 300 * 299 / 2
    assert decode(put_on_record(tier)).aggregate.metrics["loss"].sketch != b""


def test_counts_that_a_region_overstates_stop_at_the_largest_that_is_told() -> None:
    tier, most = Global(["north"]), 2**64 - 1
    told = ("num_packets", "num_messages", "num_duplicates", "num_gaps", "num_shed", "num_out_of_order", "num_late")

    for sequence in (1, 2):
        aggregate = regional(sequence)
        for name in (*told, "num_skewed"):
            setattr(aggregate, name, most)
        aggregate.level_counts["INFO"] = most
        aggregate.metrics["loss"].count = aggregate.metrics["loss"].num_non_finite = most
        tier.on_aggregate(aggregate, 0.0)
    [taken] = tier.take(10.0)
    total = decode(put_on_record(tier)).aggregate

    for folded in (taken, total):
        loss = folded.metrics["loss"]
        assert {getattr(folded, name) for name in told if name != "num_messages"} == {most}
        assert (folded.level_counts["INFO"], loss.count, loss.num_non_finite) == (most, most, most)


def test_what_was_told_without_a_sketch_goes_on_without_one() -> None:
    tier = Global(["north"])
    for sequence in (1, 2):
        aggregate = regional(sequence)
        aggregate.metrics["loss"].ClearField("sketch")
        tier.on_aggregate(aggregate, 0.0)

    [taken] = tier.take(10.0)

    assert (taken.metrics["loss"].count, taken.metrics["loss"].sketch) == (4, b"")
