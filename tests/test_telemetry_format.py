"""What a trainer's rows become on the wire, by the format that was chosen; and that it comes to the same."""

from __future__ import annotations

import math

import pytest

from esper.leyline import contracts as pb
from esper.leyline.validate.messages import validate
from esper.narset.regional import Regional
from esper.runtime.beside.packets import Format, Origin, telemetry

CRITICAL = pb.TelemetryLevel.TELEMETRY_CRITICAL


def rows(count: int, *eventful: int) -> pb.TelemetryRows:
    """From sequence 11 on; the event of a row is critical."""
    return pb.TelemetryRows(
        incarnation=5,
        first_sequence=11,
        names=["loss", "lr"],
        timestamp_ns=range(1000, 1000 + count),
        global_step=range(500, 500 + count),
        values=[cell for index in range(count) for cell in (index / 7, 0.1)],
        shed=3,
        events=[pb.RowEvent(row=row, level=CRITICAL, description="value.non_finite") for row in eventful],
    )


def folded(made: pb.TelemetryRows, form: Format) -> pb.AggregatedTelemetry:
    tier = Regional("north")
    for message, _ in telemetry(made, Origin("worker-0", "north", form)):
        validate(message)
        match message:
            case pb.TelemetryFrame():
                tier.on_frame(message, 0.0)
            case pb.ColumnarFrame():
                tier.on_columns(message, 0.0)
    [first, *others] = tier.take(0.0)
    assert not others
    return first


@pytest.mark.parametrize("form", ["frames", "columnar"])
def test_each_message_says_which_row_it_ends_with(form: Format) -> None:
    made = list(telemetry(rows(70, 40), Origin("worker-0", "north", form)))

    ends = [last for _, last in made]
    assert ends == ([42, 74, 80] if form == "frames" else [50, 51, 80])
    assert {message.shed for message, _ in made} == {3}


def test_only_rows_that_tell_of_an_event_go_as_packets_in_the_columnar_format() -> None:
    made = [message for message, _ in telemetry(rows(20, 7, 8), Origin("worker-0", "north", "columnar"))]

    assert [type(message) for message in made] == [pb.ColumnarFrame, pb.TelemetryFrame, pb.ColumnarFrame]
    [frame] = [message for message in made if isinstance(message, pb.TelemetryFrame)]
    assert [(packet.sequence, packet.level) for packet in frame.packets] == [(18, CRITICAL), (19, CRITICAL)]


def test_both_formats_are_folded_to_the_same_figures() -> None:
    framed, columnar = folded(rows(32), "frames"), folded(rows(32), "columnar")

    columnar.num_messages = framed.num_messages
    for metric in ("loss", "lr"):
        assert columnar.metrics[metric].sum == pytest.approx(framed.metrics[metric].sum, rel=1e-12)
        assert columnar.metrics[metric].m2 == pytest.approx(framed.metrics[metric].m2, rel=1e-12)
        for aggregate in (framed, columnar):
            for inexact in ("sum", "mean", "m2", "sketch"):
                aggregate.metrics[metric].ClearField(inexact)
    assert columnar == framed


def test_a_value_that_is_not_finite_is_counted_in_either_format() -> None:
    made = rows(32)
    made.values[2] = math.nan

    forms: tuple[Format, ...] = ("frames", "columnar")
    for form in forms:
        loss = folded(made, form).metrics["loss"]
        assert (loss.count, loss.num_non_finite, loss.last) == (31, 1, 31 / 7)


def test_finite_tables_beside_one_that_is_not_are_counted_as_well() -> None:
    tier, spoilt = Regional("north"), rows(16)
    spoilt.values[2] = math.nan

    for source, made in (("a", rows(16)), ("b", spoilt)):
        for message, _ in telemetry(made, Origin(source, "north", "columnar")):
            assert isinstance(message, pb.ColumnarFrame)
            tier.on_columns(message, 0.0)
    [both] = tier.take(0.0)

    assert (both.num_packets, both.metrics["loss"].count, both.metrics["loss"].num_non_finite) == (32, 31, 1)
