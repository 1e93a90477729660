"""Weights as they were when they were pruned, and what tells that pruning them was a mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from esper.kasmina.gates.meter import norm_of
from esper.kasmina.pruning.units import Key, Unit
from esper.kasmina.pruning.whole import Weights

ROUNDING = 1e-7
"""0.92 - 0.9 is more than 0.02 by the last bit, of float32 by up to 4e-8; no measured accuracy is off by so little."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Some positions of one parameter along one dimension, and a copy of what was there."""

    parameter: nn.Parameter
    dim: int
    positions: Tensor
    values: Tensor

    @torch.no_grad()
    def put_back(self) -> None:
        """Bit for bit, where the model was not cast since."""
        positions = self.positions.to(self.parameter.device)
        self.parameter.index_copy_(self.dim, positions, self.values.to(self.parameter))


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Some elements of one parameter, and a copy of what was there; `positions`: bool, of the parameter's shape."""

    parameter: nn.Parameter
    positions: Tensor
    values: Tensor

    @torch.no_grad()
    def put_back(self) -> None:
        """Bit for bit, where the model was not cast since."""
        self.parameter.masked_scatter_(self.positions.to(self.parameter.device), self.values.to(self.parameter))


@dataclass
class Change:
    """What one command has pruned so far: which masks were in force before it, and copies of the weights.

    `went_on`: of the ramp that it goes on with, a process before this one had pruned some; it has no copies of that.
    """

    before: dict[Key, Tensor]
    rows: list[KeptRows | KeptWeights] = field(default_factory=list)
    went_on: bool = False

    @property
    def is_begun(self) -> bool:
        """Whether anything is pruned that could do harm."""
        return bool(self.rows) or self.went_on

    def keep(self, unit: Unit, fresh: Tensor) -> None:
        """Copy the weights of the channels that are about to be pruned: `fresh`, bool, shape [num_channels]."""
        for part, parameter in unit.tensors():
            if isinstance(part, Weights):
                where = part.broadcast(fresh, parameter.ndim).to(parameter.device)
                self.rows.append(KeptWeights(parameter, where, parameter.detach().masked_select(where)))
                continue
            positions = part.spread(fresh.cpu()).nonzero().flatten().to(parameter.device)
            values = parameter.detach().index_select(part.dim, positions)
            self.rows.append(KeptRows(parameter, part.dim, positions, values))

    def put_back(self) -> None:
        """The newest first: where layers' heads and channels overlap, the oldest copy has the weights."""
        for rows in reversed(self.rows):
            rows.put_back()

    def copied(self) -> Change:
        """One that is pruned more of by itself; the copies are the same."""
        return Change(self.before, [*self.rows], self.went_on)

    @property
    def num_bytes(self) -> int:
        """Of all copies."""
        return sum(each.values.nbytes + each.positions.nbytes for each in self.rows)


class Watch:
    """Gradient norms against their running median, and accuracy against the last one noted before the change.

    Sums stay on the device until `verdict`. A norm that is not finite counts as too large, unless a GradScaler
    skipped the step.
    """

    def __init__(self, num_norms: int, max_ratio: float, max_drop: float) -> None:
        self.max_ratio, self.max_drop = max_ratio, max_drop
        self._norms = torch.full((num_norms,), math.nan, dtype=torch.float64, device="cpu")
        self._num = 0
        self._worst = torch.zeros((), dtype=torch.float64, device="cpu")  # norm over median, since the change
        self.baseline = math.nan

    @property
    def size(self) -> int:
        """Numbers in its state."""
        return 3 + len(self._norms)

    def state(self) -> Tensor:
        """All that it goes by, float64, shape [size]. Waits for the device."""
        kept = torch.tensor([self._num, float(self._worst), self.baseline], dtype=torch.float64, device="cpu")
        return torch.cat((kept, self._norms.cpu()))

    def load_state(self, state: Tensor) -> None:
        """As it was then."""
        self._num, self.baseline = int(state[0]), float(state[2])
        self._worst, self._norms = state[1].clone(), state[3:].clone()

    def start(self, accuracy: float) -> None:
        """A change takes effect now; norms noted before it stay."""
        self.baseline = accuracy
        self._worst.zero_()

    @torch.no_grad()
    def note(self, gradients: Sequence[Tensor], scale: Tensor | None, skipped: Tensor | None) -> None:
        """Gradients that the optimizer is about to step with."""
        norm = norm_of(gradients).double()
        self._norms, self._worst = self._norms.to(norm.device), self._worst.to(norm.device)
        if scale is not None:
            norm = norm / scale.to(norm)
        taken = (
            torch.ones((), dtype=torch.bool, device=norm.device) if skipped is None else skipped.to(norm.device) == 0
        )
        self._worst = torch.where(taken, torch.maximum(self._worst, self._ratio(norm)), self._worst)
        slot = self._norms[self._num % len(self._norms)]
        slot.copy_(torch.where(taken & torch.isfinite(norm), norm, slot))
        self._num += 1

    def _ratio(self, norm: Tensor) -> Tensor:
        median = torch.nanmedian(self._norms, 0).values  # without a dimension it would wait for the device
        known, finite = median > 0, torch.isfinite(norm)
        return torch.where(finite, torch.where(known, norm / median, 0.0), math.inf)

    def verdict(self, accuracy: float, reduce: Callable[[Tensor], Tensor]) -> str:
        """Why the change is to be undone; empty where it may stay. All ranks call it alike and come to the same."""
        drop = self.baseline - accuracy
        known = math.isfinite(drop)
        spiked = self._worst > self.max_ratio
        noted = self._worst.new_tensor([drop if known else 0.0, float(known)])
        mine = torch.cat((torch.stack((spiked.double(), self._worst.clamp_max(1e30))), noted))
        ranks_spiked, ratio, drops, ranks_known = reduce(mine).tolist()
        if ranks_spiked:
            return f"gradient norm {ratio:.3g} x its running median; at most {self.max_ratio:g}"
        if ranks_known and drops / ranks_known > self.max_drop + ROUNDING:
            points, most = 100 * drops / ranks_known, 100 * self.max_drop
            return f"accuracy {points:.3g} points below {self.baseline:g}; at most {most:g}"
        return ""
