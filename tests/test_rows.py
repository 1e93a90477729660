"""Rows of measurements, kept until they are stored."""

from __future__ import annotations

import math
import time

import pytest
import torch

from esper.leyline import contracts as pb
from esper.leyline.validate.telemetry import telemetry_frame
from esper.runtime.beside.packets import Origin, signals, telemetry
from esper.tolaria.rows.rows import Rows
from tests.counted_kit import calls_in
from tests.seed_kit import new_host, optimizer_of
from tests.session_kit import backward, unsteered


def test_rows_become_one_table_with_contiguous_numbers() -> None:
    rows = Rows(incarnation=5)
    for step in (1, 2, 3):
        rows.add(step, step * 10, {"loss": torch.tensor(step / 2), "lr": 0.1})

    table = rows.table()

    assert table is not None
    assert table.first_sequence == 1
    assert list(table.names) == ["loss", "lr"]
    assert list(table.values) == [0.5, 0.1, 1.0, 0.1, 1.5, 0.1]
    assert rows.table() is None


def test_rows_with_other_columns_go_into_a_table_of_their_own() -> None:
    rows = Rows(incarnation=5)
    rows.add(1, 1, {"loss": 1.0})
    rows.add(2, 2, {"loss": 1.0, "accuracy": 0.5})

    tables = [rows.table(), rows.table()]

    assert [table.first_sequence for table in tables if table] == [1, 2]


def test_what_was_not_stored_goes_out_again_under_the_same_numbers() -> None:
    rows = Rows(incarnation=5)
    for step in (1, 2, 3):
        rows.add(step, step, {"loss": 1.0})
    rows.table()
    rows.stored(1)
    rows.add(4, 4, {"loss": 1.0})

    rows.send_again()
    table = rows.table()

    assert table is not None
    assert table.first_sequence == 2
    assert list(table.global_step) == [2, 3, 4]


def test_a_row_over_the_capacity_is_shed_and_leaves_no_gap() -> None:
    rows = Rows(incarnation=5, capacity=2)
    for step in (1, 2, 3):
        rows.add(step, step, {"loss": 1.0})
    rows.table()
    rows.stored(2)
    rows.add(4, 4, {"loss": 1.0})

    table = rows.table()

    assert table is not None
    assert (table.first_sequence, table.global_step[0], table.shed) == (3, 4, 1)
    assert rows.made == 4


def test_a_value_that_is_not_finite_raises_a_critical_event_with_its_row() -> None:
    rows = Rows(incarnation=5)
    rows.add(1, 1, {"loss": torch.tensor(1.0)})
    rows.add(2, 2, {"loss": torch.tensor(math.nan)})

    table = rows.table()

    assert table is not None
    assert [(event.row, event.level) for event in table.events] == [(1, pb.TelemetryLevel.TELEMETRY_CRITICAL)]
    assert table.events[0].attributes["loss"] == "nan"
    assert math.isnan(table.values[1])


def plain_rows(*losses: float) -> Rows:
    """As a session's steps leave them, from step 7 on."""
    rows = Rows(incarnation=5)
    for number, loss in enumerate(losses, start=7):
        rows.plain.values += loss, 0.1, 2.0
        rows.plain.ended_s.append(time.monotonic())
        rows.plain.next_step = number + 1
    return rows


def test_plain_rows_are_a_table_as_others_are() -> None:
    rows, before_ns = plain_rows(0.5, 1.5), time.time_ns() - 1_000_000_000

    table = rows.table()

    assert table is not None
    assert (table.first_sequence, list(table.global_step), list(table.names)) == (1, [7, 8], ["loss", "lr", "step_ms"])
    assert list(table.values) == [0.5, 0.1, 2.0, 1.5, 0.1, 2.0]
    assert before_ns < table.timestamp_ns[0] <= table.timestamp_ns[1] <= time.time_ns() + 1_000_000
    assert rows.last == {"loss": 1.5, "lr": 0.1, "step_ms": 2.0}
    assert (rows.made, rows.unstored, rows.num_fresh) == (2, 2, 0)


def test_plain_rows_that_were_not_stored_go_out_again_under_the_same_numbers() -> None:
    rows = plain_rows(0.5, 1.5, 2.5)
    rows.table()
    rows.stored(1)
    rows.add(10, 10, {"loss": 3.5, "lr": 0.1, "step_ms": 2.0})

    rows.send_again()
    table = rows.table()

    assert table is not None
    assert (table.first_sequence, list(table.global_step)) == (2, [8, 9, 10])
    assert list(table.values)[::3] == [1.5, 2.5, 3.5]
    rows.stored(4)
    assert rows.unstored == 0


def test_a_plain_row_that_is_not_finite_raises_a_critical_event_with_its_row() -> None:
    rows = plain_rows(1.0, math.nan, 1.0)

    table = rows.table()

    assert table is not None
    assert [(event.row, event.attributes["loss"]) for event in table.events] == [(1, "nan")]
    assert list(table.global_step) == [7, 8, 9]


def test_what_is_told_after_plain_rows_goes_with_the_next_one() -> None:
    rows = plain_rows(1.0, 1.0)
    rows.note(pb.TelemetryLevel.TELEMETRY_WARNING, "something.happened")
    rows.add(9, 9, {"loss": 1.0, "lr": 0.1, "step_ms": 2.0})

    table = rows.table()

    assert table is not None
    assert [(event.row, event.description) for event in table.events] == [(2, "something.happened")]


def test_events_for_which_a_row_has_no_room_go_with_the_next_ones() -> None:
    rows = Rows(incarnation=5)
    for number in range(80):
        rows.note(pb.TelemetryLevel.TELEMETRY_INFO, f"event {number}")
    for step in (1, 2, 3, 4):
        rows.add(step, step, {"loss": 1.0})

    table = rows.table()

    assert table is not None
    assert [event.row for event in table.events] == [0] * 32 + [1] * 32 + [2] * 16
    assert [event.description for event in table.events] == [f"event {number}" for number in range(80)]
    assert accepted(table) == 4


def test_what_shed_rows_told_of_is_told_by_as_many_rows_as_it_takes() -> None:
    rows = Rows(incarnation=5, capacity=2)
    for step in range(1, 5):
        for number in range(20):
            rows.note(pb.TelemetryLevel.TELEMETRY_INFO, f"event {step} {number}")
        rows.add(step, step, {"loss": 1.0})
    first = rows.table()
    assert first is not None
    rows.stored(2)
    rows.add(5, 5, {"loss": 1.0})

    second = rows.table()

    assert second is not None
    assert accepted(first) + accepted(second) == 3
    told = [event.description for table in (first, second) for event in table.events]
    assert sorted(told) == sorted(f"event {step} {number}" for step in range(1, 5) for number in range(20))


def test_a_row_that_tells_of_much_tells_first_of_what_is_critical() -> None:
    rows = Rows(incarnation=5)
    for number in range(32):
        rows.note(pb.TelemetryLevel.TELEMETRY_INFO, f"event {number}")
    rows.add(1, 1, {"loss": math.nan})

    table = rows.table()
    rows.add(2, 2, {"loss": 1.0})
    after = rows.table()

    assert table is not None and after is not None
    assert (accepted(table), accepted(after)) == (1, 1)
    assert [event.description for event in table.events][-1] == "value.non_finite"
    assert [event.description for event in after.events] == ["event 31"]


def test_what_is_critical_waits_for_no_room_behind_other_events_of_its_step() -> None:
    rows = Rows(incarnation=5)
    for number in range(40):
        rows.note(pb.TelemetryLevel.TELEMETRY_INFO, f"event {number}")
    rows.note(pb.TelemetryLevel.TELEMETRY_CRITICAL, "breaker.opened")
    rows.add(1, 1, {"loss": 1.0})

    table = rows.table()

    assert table is not None
    assert [event.description for event in table.events][:2] == ["breaker.opened", "event 0"]
    assert [signal.reason for signal in signals(table, Origin("worker-0", "r0"))] == ["breaker.opened"]
    assert accepted(table) == 1


def test_what_a_full_row_measures_puts_off_nothing_that_is_critical() -> None:
    rows = Rows(incarnation=5)
    for number in range(31):
        rows.note(pb.TelemetryLevel.TELEMETRY_INFO, f"event {number}")
    rows.note(pb.TelemetryLevel.TELEMETRY_CRITICAL, "breaker.opened")
    rows.add(1, 1, {"loss": math.nan})

    table = rows.table()

    assert table is not None
    told = [signal.reason for signal in signals(table, Origin("worker-0", "r0"))]
    assert told == ["breaker.opened", "value.non_finite"]


def accepted(table: pb.TelemetryRows) -> int:
    """How many packets of it an aggregator takes; it raises where one is refused."""
    frames = [message for message, _ in telemetry(table, Origin("worker-0", "r0"))]
    for frame in frames:
        assert isinstance(frame, pb.TelemetryFrame)
        telemetry_frame(frame)
    return len(table.timestamp_ns)


def test_keeping_a_row_of_other_metrics_is_one_call() -> None:
    rows = Rows(incarnation=1)
    rows.add(1, 1, {"loss": 1.0, "accuracy": 0.5})

    called = calls_in(lambda: rows.add(2, 2, {"loss": 1.0, "accuracy": 0.5}))

    assert called == ["Rows.add"]


@pytest.mark.parametrize("kind", [torch.Tensor, torch.nn.Parameter])  # what is no plain tensor is read at a flush
def test_a_loss_may_have_dimensions_if_it_is_one_number(kind: type[torch.Tensor]) -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")

    for loss in (torch.tensor([0.5]), torch.tensor(0.25)):
        with run.step() as step:
            backward(host, 1)
            step.loss(loss if kind is torch.Tensor else kind(loss))
    table = run.exchange.rows.table()

    assert table is not None
    at, width = list(table.names).index("loss"), len(table.names)
    assert list(table.values)[at::width] == [0.5, 0.25]
    with pytest.raises(RuntimeError), run.step() as step:
        step.loss(kind(torch.ones(2)))
