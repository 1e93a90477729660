"""The state of every seed as one tensor on the host's device, written in batches and read in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from esper.errors import SettingError
from esper.kasmina.isolation.graph import sent

INT32 = torch.iinfo(torch.int32)
_NOTHING = (0,) * 10


class Column(IntEnum):
    """Columns of the state tensor, as the Kasmina documents name and number them."""

    LIFECYCLE_STAGE = 0  # number of pb.SeedLifecycleStage
    BLUEPRINT_ID = 1  # first 31 bits of the blueprint's digest
    EPOCHS_IN_STATE = 2
    LAST_GATE = 3  # passed: number of pb.SeedLifecycleGate
    ALPHA_BLEND = 4  # thousandths
    PERFORMANCE_GATE = 5  # threshold of G4, thousandths of the loss's unit
    EMBARGO_COUNTER = 6  # epochs left
    READY_FLAG = 7  # 0 or 1
    REGION_ID = 8  # number of the seed's place among those of the run
    GATE_SCORE = 9  # of the newest gate, passed or not: thousandths of its criteria


class Figures(NamedTuple):
    """What a seed is measured by; NaN where it is not measured yet."""

    gradient_norm: float
    fit: float
    size: float
    ratio: float
    non_finite: float  # samples
    strikes: float  # calls


class Row(NamedTuple):
    """All that the device holds of a seed beside its tensors, as it was read."""

    columns: Sequence[int]
    figures: Figures

    def column(self, column: Column) -> int:
        return self.columns[column]


class GPUStateTensor:
    """[num_seeds, 10] int32, on any device in spite of its name. Only `read` and `get_ready_seeds` wait for it."""

    def __init__(self, num_seeds: int, device: torch.device | str = "cpu") -> None:
        if num_seeds <= 0:
            raise SettingError("num_seeds", num_seeds, "a number above 0")
        self.num_seeds, self.device = num_seeds, torch.device(device)
        self.state_tensor = torch.zeros((num_seeds, len(Column)), dtype=torch.int32, device=self.device)
        self._shown: dict[int, Sequence[int]] = {}

    def batch_state_update(self, updates: Mapping[int, Mapping[Column, int]]) -> None:
        """Write these columns of these seeds: three small copies to the device and one scatter, however many they are.

        Raises SettingError for a seed that is not there, or a value beyond 32 bits.
        """
        cells = [(seed, column, value) for seed, row in updates.items() for column, value in row.items()]
        for seed, column, value in cells:
            if not 0 <= seed < self.num_seeds:
                raise SettingError("seed index", seed, f"a number from 0 to {self.num_seeds - 1}")
            if not INT32.min <= value <= INT32.max:
                raise SettingError(Column(column).name, value, "a number of 32 bits")
        if cells:
            seeds, columns, values = (sent(numbers, self.device) for numbers in zip(*cells, strict=True))
            self.state_tensor[seeds, columns] = values.to(torch.int32)

    def show(self, rows: Mapping[int, Sequence[int]]) -> None:
        """Let these rows be as given, all ten columns, and any other that was shown before 0. Writes what differs."""
        updates: dict[int, dict[Column, int]] = {}
        for seed in rows.keys() | self._shown.keys():
            now, before = rows.get(seed, _NOTHING), self._shown.get(seed, _NOTHING)
            if now != before:
                updates[seed] = {column: now[column] for column in Column if now[column] != before[column]}
        self.batch_state_update(updates)
        self._shown = dict(rows)

    def update_seed_state(self, seed_idx: int, columns: Mapping[Column, int]) -> None:
        self.batch_state_update({seed_idx: columns})

    def get_ready_seeds(self) -> Tensor:
        """Indices of the seeds whose READY_FLAG is set, int64. Waits for the device, which alone knows how many."""
        return torch.nonzero(self.state_tensor[:, Column.READY_FLAG]).squeeze(-1)

    def read(self) -> list[dict[Column, int]]:
        """Every seed's columns. Waits for the device: for flush points only."""
        return [dict(zip(Column, row, strict=True)) for row in self.state_tensor.tolist()]
