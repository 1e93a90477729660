"""Seeds' states are written in batches and read in one go."""

from __future__ import annotations

import pytest
import torch

from esper.errors import SettingError
from esper.kasmina.seeds.state_tensor import Column, GPUStateTensor


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
