"""Rows of measurements, kept until they are stored."""

from __future__ import annotations

import math
import time

import torch

from esper.leyline import contracts as pb
from esper.tolaria.rows import Rows
from tests.test_quiet_steps import calls_in


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


def test_keeping_a_row_of_other_metrics_is_one_call() -> None:
    rows = Rows(incarnation=1)
    rows.add(1, 1, {"loss": 1.0, "accuracy": 0.5})

    called = calls_in(lambda: rows.add(2, 2, {"loss": 1.0, "accuracy": 0.5}))

    assert called == ["Rows.add"]
