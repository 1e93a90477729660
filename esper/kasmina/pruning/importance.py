"""What each channel and head is worth to the loss, accumulated on the device and read at checkpoints only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from esper.kasmina.pruning.units import Key, Part, Unit

NUM_KINDS = 3
LARGE = 1 << 14  # elements from which a tensor on the CPU is measured alone: a kernel's call costs less than a copy


@dataclass(frozen=True, slots=True)
class Importance:
    """One value per channel, float64, shape [num_channels] each: means over the steps measured, and over the ranks.

    With g the gradient that the optimizer steps with and w the weights of the channel, bias included:
    gradient_norm is the L2 norm of g; taylor the sum of abs(w * g) (first order: Molchanov et al. 2019, arXiv
    1906.10771, with absolute values instead of squares); fisher the sum of g * g, the diagonal of the empirical Fisher
    information of whole batches, not of single examples: it lacks the variance within a batch.
    """

    gradient_norm: Tensor
    taylor: Tensor
    fisher: Tensor


@dataclass(frozen=True, slots=True)
class _Alike:
    """Tensors of one shape, cut alike, so that one kernel measures them all."""

    parameters: list[nn.Parameter]
    blocks: tuple[int, ...]
    across: tuple[int, ...]  # dimensions to sum over in a stack of them: all but the first and the channels'


class ImportanceTracker:
    """Sums over steps. Knows no masks, no messages, and not when it is asked.

    `update` costs a few kernels for each shape of parameter and never waits for the device. Steps whose gradients are
    not finite count for nothing.
    """

    def __init__(
        self, units: Mapping[Key, Unit], *, reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor
    ) -> None:
        """`reduce` makes a tensor its mean over ranks and is called by all ranks alike, in `get_stats`."""
        self._units, self._reduce = dict(units), reduce
        self._alike, self._places = _layout(self._units.values())
        device = self._places.device
        self._num_channels = sum(unit.num_channels for unit in self._units.values())
        self._sums = torch.zeros(NUM_KINDS, self._num_channels, dtype=torch.float64, device=device)
        self._num_steps = torch.zeros((), dtype=torch.float64, device=device)

    @torch.no_grad()
    def update(self, scale: Tensor | None = None, skipped: Tensor | None = None) -> None:
        """Add the gradients as they are now: before the optimizer steps, as Taylor's weights are those of the gradient.

        `scale`: a factor that is still in the gradients, `skipped`: whether the optimizer will leave the step out; both
        0-dim tensors that a GradScaler gives a fused optimizer.
        """
        if not self._num_channels:
            return
        pieces = [_measured(alike) for alike in self._alike]
        flat = torch.cat([piece.flatten(1).to(self._places.device) for piece in pieces], 1).double()
        if scale is not None:
            flat /= torch.stack((scale.square(), scale)).to(flat)[:, None]
        sums = torch.zeros(2, self._num_channels, dtype=torch.float64, device=flat.device)
        squares, taylor = sums.index_add_(1, self._places, flat)
        sound = torch.isfinite(sums).all() & (True if skipped is None else skipped.to(flat.device) == 0)
        values = torch.stack((squares.sqrt(), taylor, squares))
        self._sums += torch.where(sound, values, 0)
        self._num_steps += sound

    def num_steps(self) -> int:
        """Steps measured by this rank. Waits for the device."""
        return int(self._num_steps)

    def get_stats(self) -> dict[Key, Importance]:
        """Every unit's importance; NaN where no step was measured. Waits for the device; all ranks call it alike."""
        means = self._reduce(self._sums / self._num_steps).cpu()
        columns = torch.split(means, [unit.num_channels for unit in self._units.values()], 1)
        return {key: Importance(*column) for key, column in zip(self._units, columns, strict=True)}

    def state(self) -> dict[str, Tensor]:
        """Copies of the sums, for a checkpoint."""
        return {"sums": self._sums.clone(), "num_steps": self._num_steps.clone()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Sums of the same model; of another shape they are left alone, as importance is measured again soon."""
        if state["sums"].shape == self._sums.shape:
            self._sums.copy_(state["sums"])
            self._num_steps.copy_(state["num_steps"])


def scaled_by(optimizer: torch.optim.Optimizer) -> tuple[Tensor | None, Tensor | None]:
    """(scale, skipped) that a GradScaler left on a fused optimizer for this step; others get unscaled gradients."""
    scale: Any = getattr(optimizer, "grad_scale", None)
    return scale, getattr(optimizer, "found_inf", None)


def _layout(units: Iterable[Unit]) -> tuple[list[_Alike], Tensor]:
    """Tensors grouped by shape, and to which channel each measured value belongs, in the order of measuring."""
    groups: dict[tuple[Any, ...], list[tuple[nn.Parameter, Part, int, int]]] = {}
    start = 0
    for unit in units:
        for part, p in unit.tensors():
            alone = id(p) if p.device.type == "cpu" and p.numel() >= LARGE else None
            kind = (part.dim, part.blocks(p.shape, unit.num_channels), p.dtype, p.device, alone)
            groups.setdefault(kind, []).append((p, part, unit.num_channels, start))
        start += unit.num_channels
    alike = []
    places: list[Tensor] = [torch.zeros(0, dtype=torch.long, device="cpu")]
    device = torch.device("cpu")
    for (dim, blocks, _, device, _), members in groups.items():  # noqa: B007 - sums lie on the last one
        across = tuple(at for at in range(1, len(blocks) + 1) if at != dim + 2)
        alike.append(_Alike([p for p, *_ in members], blocks, across))
        places += [torch.arange(first, first + num, device="cpu") for _, _, num, first in members]
    return alike, torch.cat(places).to(device)


def _measured(alike: _Alike) -> Tensor:
    """Sum of squares of g and sum of abs(w * g), per tensor and channel: shape [2, number of tensors, num_channels]."""
    weights: list[Tensor] = [*alike.parameters]
    gradients = [p.new_zeros(()).expand_as(p) if p.grad is None else p.grad for p in alike.parameters]
    blocks = alike.blocks
    if blocks[:2] == (1, 1) and len(gradients) == 1 and _is_of_rows(gradients[0]):
        weights, gradients = _touched(weights[0], gradients[0].coalesce())
        blocks = (1, 1, *gradients[0].shape)
    gradients = [g.to_dense() if g.is_sparse else g for g in gradients]  # as an Embedding's can be
    if weights[0].dtype in (torch.float16, torch.bfloat16):  # a product of two small halves is zero
        weights, gradients = [w.float() for w in weights], [g.float() for g in gradients]
    products = torch._foreach_mul(gradients, weights)
    if products[0].is_complex():
        products = torch._foreach_abs(products)
    else:
        torch._foreach_abs_(products)
    norms = torch.linalg.vector_norm(_stacked(gradients, blocks), 2, alike.across)
    return torch.stack((norms.square(), _stacked(products, blocks).sum(alike.across)))


def _is_of_rows(gradient: Tensor) -> bool:
    """Not of single elements, as that of torch.gather is. On another device to add rows up would be to wait for it."""
    return gradient.is_sparse and gradient.sparse_dim() == 1 and gradient.is_cpu


def _touched(table: Tensor, gradient: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Of a table that is one channel, the rows that have a gradient: of millions few are looked up in a step."""
    return [table[gradient.indices()[0]]], [gradient.values()]


def _stacked(tensors: Sequence[Tensor], blocks: tuple[int, ...]) -> Tensor:
    cut = [tensor.reshape(blocks) for tensor in tensors]
    return torch.stack(cut) if len(cut) > 1 else cut[0][None]
