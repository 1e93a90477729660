"""The rows of all seeds: written where they changed, and read in one transfer a device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from esper.kasmina.advance import ready
from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.ledger import GRADIENT_NORM, NON_FINITE, STRIKES, Ledger
from esper.kasmina.gates.meter import Meter
from esper.kasmina.seeds.seed import Moment, Seed
from esper.kasmina.seeds.state_tensor import INT32, Column, Figures, Row
from esper.kernels.blueprints import Blueprint
from esper.leyline.lifecycle import DORMANT

NUM_COLUMNS = len(Column)
_MOST = INT32.max  # reading it takes longer than the rest of a column


@dataclass(frozen=True, slots=True)
class States:
    """Makes the state tensors what the seeds are.

    Stage, alpha and age are this process's own knowledge, and change a few at a time: they are written when someone
    reads, in one scatter of the cells that differ, so that a step in between pays nothing for them.
    """

    config: KasminaConfig
    blueprints: Mapping[str, Blueprint]
    places: Mapping[str, int]  # number of each site
    ledgers: Sequence[Ledger]  # the executor's own list: it grows
    _numbers: dict[str, int] = field(default_factory=dict)  # of blueprints

    def read(self, seeds: Sequence[Seed], now: Moment) -> list[Row]:
        """Of all seeds that there are, brought up to date. Waits for each device once: for flush points only."""
        self.write(seeds, now)
        return rows_of([seed.meter for seed in seeds])

    def write(self, seeds: Iterable[Seed], now: Moment) -> None:
        """Waits for no device. The row of a seed that is not among these is no longer anybody's."""
        rows: dict[Ledger, dict[int, Sequence[int]]] = defaultdict(dict)
        for seed in seeds:
            rows[seed.meter.ledger][seed.meter.row] = self._columns(seed, now)
        for ledger in self.ledgers:
            ledger.states.show(rows.get(ledger, {}))

    def _columns(self, seed: Seed, now: Moment) -> Sequence[int]:
        place = self.places[seed.site]
        if seed.stage == DORMANT:  # nobody's yet, or no longer
            return (int(DORMANT), 0, 0, 0, 0, 0, 0, 0, place, 0)
        return (
            int(seed.stage),
            self._number(seed.blueprint_id),
            _within(now.epoch - seed.stage_since_epoch),
            _last_gate(seed),
            round(1000 * seed.schedule.at(now.step)) if seed.blends else 0,
            _within(round(1000 * self.config.min_gain), -_MOST),
            _within(seed.embargo_until_epoch - now.epoch),
            int(ready(seed, now.step, now.epoch, self.config)),
            place,
            round(1000 * seed.gate_score),
        )

    def _number(self, blueprint_id: str) -> int:
        """0 for one that is not known here."""
        if blueprint_id not in self._numbers:
            blueprint = self.blueprints.get(blueprint_id)
            self._numbers[blueprint_id] = 0 if blueprint is None else int(blueprint.digest[:8], 16) >> 1
        return self._numbers[blueprint_id]


def rows_of(meters: Sequence[Meter]) -> list[Row]:
    """What the device holds of each seed. Waits for each device once, however many seeds it has."""
    read = {ledger: _row_tensor(ledger).tolist() for ledger in {meter.ledger for meter in meters}}
    found = [read[meter.ledger][meter.row] for meter in meters]
    return [Row([int(value) for value in row[:NUM_COLUMNS]], Figures(*row[NUM_COLUMNS:])) for row in found]


def _row_tensor(ledger: Ledger) -> Tensor:
    """Columns, exact in float64, and Figures of each row."""
    totals, means = ledger.totals(), ledger.means()
    states = ledger.states.state_tensor.double()
    return torch.cat([states, ledger.levels[:, [GRADIENT_NORM]], means, totals[:, [NON_FINITE, STRIKES]]], 1)


def _within(value: int, lowest: int = 0) -> int:
    return min(max(value, lowest), _MOST)


def _last_gate(seed: Seed) -> int:
    return next((int(each.gate) for each in reversed(seed.history) if each.gate and each.passed), 0)
