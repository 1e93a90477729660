"""Rows of measurements, kept until they are stored."""

from __future__ import annotations

import math

import torch

from esper.leyline import contracts as pb
from esper.tolaria.rows import Rows


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
