"""Tier 1 folds a region's packets 32:1, each once, and says what it left out."""

from __future__ import annotations

import pytest

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.validate.messages import validate
from esper.narset.regional import GAP_S, GONE_S, Regional


def frame(
    first: int, last: int, *, source: str = "worker-0", shed: int = 0, region: str = "north", incarnation: int = 7
) -> pb.TelemetryFrame:
    """Packets `first` to `last`, each with a loss equal to its sequence."""
    packets = [
        pb.TelemetryPacket(
            version=1,
            sequence=number,
            timestamp_ns=1000 + number % 2**32,
            global_step=number % 2**32,
            level=pb.TelemetryLevel.TELEMETRY_INFO,
            values={"loss": float(number)},
        )
        for number in range(first, last + 1)
    ]
    return pb.TelemetryFrame(
        version=1, source=source, incarnation=incarnation, region=region, packets=packets, shed=shed
    )


def put_on_record(tier: Regional) -> dict[bytes, bytes]:
    return {name.encode(): value for name, value in tier.changed().items()}


def test_thirty_two_packets_become_one_aggregate() -> None:
    tier = Regional("north")

    tier.on_frame(frame(1, 32), 0.0)
    [aggregate] = tier.take(0.0)

    assert (aggregate.region, aggregate.sequence, aggregate.partial) == ("north", 1, False)
    assert (aggregate.num_packets, aggregate.num_messages, aggregate.max_step) == (32, 1, 32)
    assert (aggregate.first_timestamp_ns, aggregate.last_timestamp_ns) == (1001, 1032)
    assert dict(aggregate.level_counts) == {"INFO": 32}
    loss = aggregate.metrics["loss"]
    assert (loss.count, loss.sum, loss.min, loss.max, loss.last) == (32, 528.0, 1.0, 32.0, 32.0)


def test_frames_that_do_not_fit_windows_are_folded_whole() -> None:
    tier = Regional("north")

    for first in (1, 21, 41):
        tier.on_frame(frame(first, first + 19), 0.0)
    aggregates = tier.take(0.0)

    assert [aggregate.num_packets for aggregate in aggregates] == [32, 28]
    assert [aggregate.partial for aggregate in aggregates] == [False, True]
    assert [aggregate.sequence for aggregate in aggregates] == [1, 2]
    assert sum(aggregate.num_messages for aggregate in aggregates) == 3


def test_packets_sent_again_in_another_frame_are_counted_once() -> None:
    tier = Regional("north")
    tier.on_frame(frame(1, 20), 0.0)
    tier.take(0.0)

    tier.on_frame(frame(11, 30), 0.1)
    [aggregate] = tier.take(0.1)

    assert (aggregate.num_packets, aggregate.num_duplicates) == (10, 10)
    assert aggregate.metrics["loss"].sum == sum(range(21, 31))


def test_what_was_met_before_a_restart_is_known_after_it() -> None:
    before, after = Regional("north"), Regional("north")
    before.on_frame(frame(1, 32, shed=4), 0.0)
    before.take(0.0)

    record = put_on_record(before)
    after.load(record)
    after.on_frame(frame(1, 40, shed=6), 50.0)
    [aggregate] = after.take(50.0)

    assert (aggregate.sequence, aggregate.num_packets, aggregate.num_duplicates, aggregate.num_shed) == (2, 8, 32, 2)
    assert after.state.expected == record[b"version"]


def test_a_gap_is_told_after_five_seconds_even_if_nothing_else_comes() -> None:
    tier = Regional("north")
    tier.on_frame(frame(1, 10), 0.0)
    tier.on_frame(frame(14, 20), 0.0)
    [first] = tier.take(1.0)

    assert first.num_gaps == 0
    assert tier.wait_s(2.0) == pytest.approx(GAP_S - 1.0)
    [second] = tier.take(1.0 + GAP_S)
    assert (second.num_packets, second.num_gaps, second.partial, second.sequence) == (0, 3, True, 2)
    assert tier.wait_s(60.0) is None
    assert tier.take(60.0) == []


def test_two_incarnations_of_a_source_are_told_apart() -> None:
    tier = Regional("north")
    respawned = frame(1, 5)
    respawned.incarnation = 8

    tier.on_frame(frame(1, 5), 0.0)
    tier.on_frame(respawned, 0.0)

    assert [aggregate.num_packets for aggregate in tier.take(0.0)] == [10]


def test_points_with_labels_are_metrics_of_their_own() -> None:
    tier = Regional("north")
    labelled = frame(1, 2)
    labelled.packets[0].metrics.add(name="norm", value=2.0, labels={"site": "head", "kind": "l2"})
    labelled.packets[1].metrics.add(name="norm", value=3.0)

    tier.on_frame(labelled, 0.0)
    [aggregate] = tier.take(0.0)

    assert {name: found.count for name, found in aggregate.metrics.items()} == {
        "loss": 2,
        "norm{kind=l2,site=head}": 1,
        "norm": 1,
    }
    assert aggregate.metrics["norm"].last_sequence == 2


def test_events_of_packets_are_handed_on() -> None:
    tier = Regional("north")
    critical = frame(1, 1)
    critical.packets[0].level = pb.TelemetryLevel.TELEMETRY_CRITICAL
    critical.packets[0].events.add(event_id="e1", description="loss is NaN")

    tier.on_frame(critical, 0.0)
    [aggregate] = tier.take(0.0)

    assert [event.event_id for event in aggregate.events] == ["e1"]
    assert dict(aggregate.level_counts) == {"CRITICAL": 1}


def test_a_frame_of_another_region_is_refused_and_changes_nothing() -> None:
    tier = Regional("north")

    with pytest.raises(RefusedError, match="'south'") as refused:
        tier.on_frame(frame(1, 3, region="south"), 0.0)

    assert refused.value.reason == pb.ReasonCode.REASON_WRONG_CONTEXT
    assert tier.take(0.0) == []


def test_an_absurd_sequence_number_does_not_stop_the_region() -> None:
    tier = Regional("north")
    for source in ("worker-0", "worker-1"):
        tier.on_frame(frame(2**64 - 2, 2**64 - 2, source=source, shed=2**64 - 1), 0.0)
    tier.take(0.0)

    [aggregate] = tier.take(GAP_S)

    assert aggregate.num_gaps == 2**64 - 1


def test_more_metrics_or_longer_names_than_a_message_takes_do_not_stop_the_region() -> None:
    tier = Regional("north")
    for source in range(3):
        wide = frame(1, 1, source=f"worker-{source}")
        for index in range(500):
            wide.packets[0].values[f"metric-{source}-{index}"] = 1.0
        wide.packets[0].metrics.add(name="n" * 255, value=2.0, labels={"site": "head"})
        tier.on_frame(wide, 0.0)

    [aggregate] = tier.take(0.0)

    validate(aggregate)
    assert aggregate.num_packets == 3
    assert aggregate.metrics["loss"].count == 3


def windows_on_record(tier: Regional) -> tuple[set[str], set[str]]:
    """Names of the windows that the next change puts on record, and of those that it deletes."""
    fields = {name: value for name, value in tier.changed().items() if name.startswith("source:")}
    return {name for name, value in fields.items() if value}, {name for name, value in fields.items() if not value}


def test_the_window_of_a_process_that_was_followed_by_another_is_forgotten_once_it_was_silent_for_long() -> None:
    tier = Regional("north")
    tier.on_frame(frame(1, 32), 0.0)
    tier.on_frame(frame(1, 32, source="other"), 0.0)
    tier.take(0.0)
    tier.changed()

    tier.on_frame(frame(1, 32, incarnation=8), GONE_S - 1)
    tier.take(GONE_S - 1)
    early = windows_on_record(tier)
    tier.on_frame(frame(33, 64, incarnation=8), 2 * GONE_S)
    tier.take(2 * GONE_S)

    assert early == ({"source:worker-0:8"}, set())
    assert windows_on_record(tier) == ({"source:worker-0:8"}, {"source:worker-0:7"})
    assert set(tier.state.windows) == {"worker-0:8", "other:7"}


def test_a_source_that_paused_for_long_goes_on_without_a_gap() -> None:
    tier = Regional("north")
    tier.on_frame(frame(1, 32), 0.0)
    tier.take(0.0)

    tier.on_frame(frame(33, 64), 10 * GONE_S)
    [aggregate] = tier.take(10 * GONE_S)
    later = tier.take(10 * GONE_S + GAP_S)

    assert (aggregate.num_packets, aggregate.num_gaps, later) == (32, 0, [])


def test_windows_on_record_are_forgotten_by_a_later_process_too_and_never_those_it_has_not_seen_followed() -> None:
    first = Regional("north")
    for source, incarnation in (("worker-0", 7), ("worker-1", 1), ("worker-1", 2)):
        first.on_frame(frame(1, 32, source=source, incarnation=incarnation), 0.0)
    first.take(0.0)
    tier = Regional("north")
    tier.load(put_on_record(first))

    tier.take(0.0)
    tier.on_frame(frame(1, 32, incarnation=8), 2 * GONE_S)
    tier.take(2 * GONE_S)

    assert set(tier.state.windows) == {"worker-0:8", "worker-1:1", "worker-1:2"}
