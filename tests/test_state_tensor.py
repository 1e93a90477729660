"""Seeds' states are written in batches and read in one go."""

from __future__ import annotations

import math

import pytest
import torch

from esper.errors import SettingError
from esper.kasmina.meter import Meter
from esper.kasmina.state_tensor import Column, GPUStateTensor, read_figures


def test_the_ten_columns_stand_where_the_documents_put_them() -> None:
    assert [column.name for column in Column] == [
        "LIFECYCLE_STAGE",
        "BLUEPRINT_ID",
        "EPOCHS_IN_STATE",
        "LAST_GATE",
        "ALPHA_BLEND",
        "PERFORMANCE_GATE",
        "EMBARGO_COUNTER",
        "READY_FLAG",
        "REGION_ID",
        "GATE_SCORE",
    ]
    states = GPUStateTensor(3).state_tensor
    assert (states.shape, states.dtype, states.is_contiguous()) == ((3, 10), torch.int32, True)


def test_a_batch_writes_the_cells_it_names_and_no_other() -> None:
    states = GPUStateTensor(3)
    states.update_seed_state(1, {Column.REGION_ID: 7})

    states.batch_state_update({0: {Column.LIFECYCLE_STAGE: 3, Column.ALPHA_BLEND: 500}, 1: {Column.LIFECYCLE_STAGE: 4}})

    read = states.read()
    assert [{column.name: value for column, value in row.items() if value} for row in read] == [
        {"LIFECYCLE_STAGE": 3, "ALPHA_BLEND": 500},
        {"LIFECYCLE_STAGE": 4, "REGION_ID": 7},
        {},
    ]


def test_ready_seeds_are_those_whose_flag_is_set() -> None:
    states = GPUStateTensor(5)

    states.batch_state_update({seed: {Column.READY_FLAG: 1} for seed in (1, 4)})

    assert states.get_ready_seeds().tolist() == [1, 4]


def test_a_write_out_of_bounds_is_refused_with_nothing_written() -> None:
    states = GPUStateTensor(2)

    with pytest.raises(SettingError, match="seed index is 2; expected a number from 0 to 1"):
        states.batch_state_update({0: {Column.READY_FLAG: 1}, 2: {Column.READY_FLAG: 1}})
    with pytest.raises(SettingError, match="BLUEPRINT_ID is 2147483648; expected a number of 32 bits"):
        states.update_seed_state(0, {Column.BLUEPRINT_ID: 2**31})

    assert not states.state_tensor.any()


def test_a_tensor_for_no_seeds_is_refused() -> None:
    with pytest.raises(SettingError, match="num_seeds is 0"):
        GPUStateTensor(0)


def test_figures_of_all_seeds_are_read_together_and_tell_the_unmeasured_apart() -> None:
    fresh, measured = (Meter(2, torch.device("cpu")) for _ in range(2))
    for gradient in (3.0, 5.0):
        measured.fitting.grad = torch.tensor([0.25 * gradient, 1, 2 * gradient, 1, 1, 4, 0], dtype=torch.float64)
        measured.close_step(*torch.tensor([10.0, gradient], dtype=torch.float64))

    none, some = read_figures([fresh, measured])

    assert none.gradient_norm == none.non_finite == 0.0
    assert all(math.isnan(value) for value in (none.fit, none.size, none.ratio))
    assert some == pytest.approx((5.0, 1.0, 8.0, 0.4, 8.0, 2.0))  # means over the two steps; counts are sums
    assert read_figures([]) == []
