"""What one seed is measured by: its row of a ledger."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.ledger import (
    CALLS,
    DRIFT,
    FIRST_FITS,
    GRADIENT_NORM,
    NON_FINITE,
    NUM_ROWS,
    RING_FITS,
    RING_RATIOS,
    RING_SIZES,
    SHADOWED,
    STRIKES,
    Ledger,
)
from esper.kasmina.gates.ring import Ring
from esper.kasmina.isolation.functions import norm


class Meter:
    """Fit, size, gradient ratio, strikes and drift of one seed. Judges nothing.

    A call is a forward of the site with a backward. Fits, sizes and ratios are means over the calls of one optimizer
    step; the rest is summed over calls.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Takes a row, and gives it back once nothing holds the meter."""
        self.ledger, self.row = ledger, ledger.take()
        self.num_mismatches = 0
        weakref.finalize(self, ledger.give_back, self.row).atexit = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Meter:
        made = Meter(Ledger(self.ledger.config, self.device, 1))
        made.fill(self)
        return made

    def fill(self, other: Meter) -> None:
        """Be what the other one is; what calls noted here and no step has taken is forgotten."""
        self.ledger.copy(self.row, other.ledger, other.row)
        self.num_mismatches = other.num_mismatches

    @property
    def device(self) -> torch.device:
        return self.ledger.device

    @property
    def fits(self) -> Ring:
        return self._ring(RING_FITS)

    @property
    def sizes(self) -> Ring:
        return self._ring(RING_SIZES)

    @property
    def ratios(self) -> Ring:
        return self._ring(RING_RATIOS)

    def _ring(self, which: int) -> Ring:
        self.ledger.write()
        return self.ledger.rings[self.row][which]

    @property
    def first_fits(self) -> Tensor:
        """Sum over the first window."""
        return self._level(FIRST_FITS)

    @property
    def gradient_norm(self) -> Tensor:
        return self._level(GRADIENT_NORM)

    @property
    def drift(self) -> Tensor:
        """Largest abs(norm(y) / norm(h) - 1) for the blended value y, since blending began."""
        return self._level(DRIFT)

    def _level(self, which: int) -> Tensor:
        self.ledger.write()
        return self.ledger.levels[self.row, which]

    @property
    def strikes(self) -> Tensor:
        """Calls in which the seed was gated away."""
        return self._total(STRIKES)

    @property
    def num_non_finite(self) -> Tensor:
        """Samples."""
        return self._total(NON_FINITE)

    @property
    def num_batches(self) -> Tensor:
        """Calls since blending began."""
        return self._total(CALLS)

    @property
    def num_shadowed(self) -> Tensor:
        return self._total(SHADOWED)

    def _total(self, place: int) -> Tensor:
        return self.ledger.totals()[self.row, place]

    def forgive(self) -> None:
        """No strikes so far."""
        self._forget(STRIKES, NON_FINITE)

    def start_blending(self) -> None:
        """Drift is measured from here on."""
        self._forget(CALLS, SHADOWED)
        self.ledger.levels[self.row, DRIFT] = 0.0
        self.num_mismatches = 0

    def _forget(self, *places: int) -> None:
        self.ledger.write()
        self.ledger.forget_calls(self.row)
        for place in places:
            self.ledger.sums[self.row, place] = 0.0

    def as_row(self) -> dict[str, Any]:
        """Tensors, the live ones, and counts; between two steps."""
        self.ledger.leave_out()
        self.ledger.write()
        tensors = {name: getattr(self.ledger, name)[self.row] for name in ("sums", "levels", "values")}
        return tensors | {
            "totals": [ring.total for ring in self.ledger.rings[self.row]],
            "num_mismatches": self.num_mismatches,
        }

    def fill_from(self, row: Mapping[str, Any]) -> None:
        """As `as_row` gave it. Rings of another size begin anew: the window was set otherwise."""
        self.ledger.clear(self.row)
        self.num_mismatches = row["num_mismatches"]
        for name in ("sums", "levels"):
            getattr(self.ledger, name)[self.row].copy_(row[name])
        if row["values"].shape == self.ledger.values[self.row].shape:
            self.ledger.values[self.row].copy_(row["values"])
            for ring, total in zip(self.ledger.rings[self.row], row["totals"], strict=True):
                ring.total = total


class Meters:
    """Gives out meters, as many of a device from one ledger as it has rows."""

    def __init__(self, config: KasminaConfig, num_rows: int = NUM_ROWS) -> None:
        self._config, self._num_rows = config, num_rows
        self.ledgers: list[Ledger] = []

    def new(self, device: torch.device) -> Meter:
        ledger = next((each for each in self.ledgers if each.device == device and not each.full), None)
        if ledger is None:
            ledger = Ledger(self._config, device, self._num_rows)
            self.ledgers.append(ledger)
        return Meter(ledger)

    def begin_step(self) -> None:
        """What was measured since the last one ended is of none."""
        for ledger in self.ledgers:
            ledger.leave_out()
            ledger.is_under_way = True

    def end_step(self) -> None:
        """What is measured from here on is of no step."""
        for ledger in self.ledgers:
            ledger.is_under_way = False


def norm_of(gradients: Sequence[Tensor]) -> Tensor:
    """L2 norm over all of them, without waiting for the device; of a sparse one, of its rows added up."""
    dense = [each.coalesce().values() if each.is_sparse else each for each in gradients]
    return norm(torch.stack([each.float() for each in torch._foreach_norm(dense)]))
