"""Packets that come late, twice, out of order, not at all, or from a clock that is wrong: each handled, and counted."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import DeadlineKind, Header
from esper.leyline.kinds import Domain, Role
from esper.narset.regional import GAP_S, Regional
from esper.narset.sequences import SequenceWindow

AT_NS = 1_700_000_000_000_000_000
S_NS = 1_000_000_000


def packets(numbers: Iterable[int], at_ns: int = AT_NS) -> list[pb.TelemetryPacket]:
    return [
        pb.TelemetryPacket(version=1, sequence=number, timestamp_ns=at_ns, values={"loss": float(number)})
        for number in numbers
    ]


def frame(numbers: Iterable[int], at_ns: int = AT_NS) -> pb.TelemetryFrame:
    made = packets(numbers, at_ns)
    return pb.TelemetryFrame(version=1, source="worker-0", incarnation=7, region="north", packets=made)


def columns(first: int, last: int, at_ns: int = AT_NS) -> pb.ColumnarFrame:
    """The same packets as a table."""
    numbers = np.arange(first, last + 1, dtype="<u8")
    return pb.ColumnarFrame(
        version=1,
        source="worker-0",
        incarnation=7,
        first_sequence=first,
        schema=pb.MetricSchema(version=1, names=["loss"]),
        region="north",
        timestamp_ns=np.full(len(numbers), at_ns, dtype="<u8").tobytes(),
        global_step=numbers.tobytes(),
        values=numbers.astype("<f8").tobytes(),
    )


def header(target: str) -> Header:
    return Header(
        1, Domain.TELEMETRY, 602, 7, 1, AT_NS, DeadlineKind.NONE, 0, 0, "run", Role.WORKER, "worker-0", target
    )


def figures(aggregate: pb.AggregatedTelemetry) -> tuple[int, int, int, int, int, int]:
    """Packets, duplicates, out of order, late, gaps, skewed."""
    return (
        aggregate.num_packets,
        aggregate.num_duplicates,
        aggregate.num_out_of_order,
        aggregate.num_late,
        aggregate.num_gaps,
        aggregate.num_skewed,
    )


def test_a_packet_below_one_met_before_is_out_of_order_and_counts() -> None:
    tier = Regional("north")

    tier.on_frame(frame([1, 2, 5, 6]), 0.0)
    tier.on_frame(frame([3, 4]), 0.0)
    [aggregate] = tier.take(0.0)

    assert figures(aggregate) == (6, 0, 2, 0, 0, 0)
    assert aggregate.metrics["loss"].sum == 21.0


def test_a_packet_that_was_declared_missing_is_late_and_counts() -> None:
    tier = Regional("north")
    tier.on_frame(frame([1, 4]), 0.0)
    tier.take(0.0)
    [gap] = tier.take(GAP_S)

    tier.on_frame(frame([2]), GAP_S + 1)
    [late] = tier.take(GAP_S + 1)

    assert figures(gap) == (0, 0, 0, 0, 2, 0)
    assert figures(late) == (1, 0, 1, 1, 0, 0)


@pytest.mark.parametrize("form", ["frame", "columns"])
def test_a_packet_from_the_future_counts_with_the_time_of_its_entry(form: str) -> None:
    tier = Regional("north")
    for numbers, at_ns in (((1, 4), AT_NS + 9 * S_NS), ((5, 8), AT_NS)):
        if form == "frame":
            tier.on_frame(frame(range(numbers[0], numbers[1] + 1), at_ns), 0.0, AT_NS)
        else:
            tier.on_columns(columns(*numbers, at_ns), 0.0, AT_NS)

    [aggregate] = tier.take(0.0)

    assert figures(aggregate) == (8, 0, 0, 0, 0, 4)
    assert aggregate.last_timestamp_ns == AT_NS
    assert aggregate.metrics["loss"].last == 8.0


def test_of_packets_of_one_moment_the_last_is_of_the_highest_source_and_then_sequence() -> None:
    tier, early = Regional("north"), AT_NS - S_NS
    for source, numbers, at_ns in (
        ("w1", [1, 2], AT_NS),
        ("w0", [7, 8], AT_NS),
        ("w1", [5, 3], AT_NS),
        ("w9", [9], early),
    ):
        sent = frame(numbers, at_ns)
        sent.source = source
        tier.on_frame(sent, 0.0)

    [aggregate] = tier.take(0.0)

    assert aggregate.metrics["loss"].last == 5.0


def test_a_table_sent_again_with_more_rows_counts_only_those() -> None:
    tier = Regional("north")
    tier.on_columns(columns(1, 300), 0.0)
    tier.on_columns(columns(201, 400), 0.0)

    [aggregate] = tier.take(0.0)

    assert figures(aggregate) == (400, 100, 0, 0, 0, 0)
    assert (aggregate.metrics["loss"].sum, aggregate.metrics["loss"].max) == (80200.0, 400.0)
    assert (aggregate.max_step, aggregate.num_messages) == (400, 2)


def test_packets_frames_and_tables_of_one_source_share_its_numbers() -> None:
    tier = Regional("north")
    tier.on_columns(columns(1, 10), 0.0)
    tier.on_frame(frame(range(8, 14)), 0.0)
    for packet in packets(range(12, 16)):
        tier.on_packet(packet, header("north"), 0.0)

    aggregates = tier.take(0.0)

    assert sum(aggregate.num_packets for aggregate in aggregates) == 15
    assert sum(aggregate.num_duplicates for aggregate in aggregates) == 5
    assert sum(aggregate.metrics["loss"].sum for aggregate in aggregates) == sum(range(1, 16))


@pytest.mark.parametrize("target", ["*", "south"])
def test_a_packet_sealed_for_another_region_is_refused(target: str) -> None:
    tier = Regional("north")

    with pytest.raises(RefusedError) as refused:
        tier.on_packet(packets([1])[0], header(target), 0.0)

    assert refused.value.reason == pb.ReasonCode.REASON_WRONG_CONTEXT
    assert tier.take(0.0) == []


def test_whatever_comes_in_whatever_order_each_packet_counts_once() -> None:
    tier, chance = Regional("north"), random.Random(3)
    starts = [chance.randrange(1, 2000) for _ in range(300)]
    met = set[int]()
    for start in starts:
        numbers = range(start, start + chance.randrange(1, 40))
        met |= set(numbers)
        if chance.random() < 0.5:
            tier.on_columns(columns(numbers[0], numbers[-1]), 0.0)
        else:
            tier.on_frame(frame(sorted(chance.sample(numbers, len(numbers)))), 0.0)

    aggregates = tier.take(0.0)

    assert sum(aggregate.num_packets for aggregate in aggregates) == len(met)
    assert sum(aggregate.metrics["loss"].sum for aggregate in aggregates) == pytest.approx(sum(met), rel=1e-12)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)), max_size=40))
def test_a_run_of_numbers_is_admitted_as_its_numbers_one_by_one_are(runs: list[tuple[int, int]]) -> None:
    together, apart = SequenceWindow(), SequenceWindow()
    for first, more in runs:
        new = list(together.admit_run(first, first + more))
        assert new == [number for number in range(first, first + more + 1) if apart.admit(number)]
    assert together.dump() == apart.dump()
    assert (together.num_out_of_order, together.num_late) == (apart.num_out_of_order, apart.num_late)
