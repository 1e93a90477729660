"""What a seed is worth: loss with it off and on, on the same held-out examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from esper.kernels.split import own_part, reshard
from esper.leyline import contracts as pb

if TYPE_CHECKING:
    from esper.kasmina.slots.slot import Slot


def of_one_input(model: nn.Module, inputs: Any) -> Any:
    """How most models are called."""
    return model(inputs)


@dataclass(frozen=True, slots=True)
class Holdout:
    """Examples that are never trained on; loss_fn(call(model, inputs), targets) gives one loss per example."""

    batches: Sequence[tuple[Any, Any]]
    loss_fn: Callable[[Any, Any], Tensor]
    call: Callable[[nn.Module, Any], Any] = of_one_input


def cuda_devices(model: nn.Module) -> list[torch.device]:
    """Devices whose generators a computation of this model may draw from, the CPU apart."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # no parameter can lie on one
        return []
    return sorted({p.device for p in model.parameters() if p.device.type == "cuda"}, key=str)


class Buffers:
    """What a model's buffers hold, put back where a forward in eval mode may have written to them, as observers do."""

    def __init__(self, model: nn.Module) -> None:
        self._placed = [
            (module._buffers, name, buffer, buffer.shape)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and _is_writable(buffer)
        ]
        self._live = [own_part(buffer).data for _, _, buffer, _ in self._placed]  # whose versions stand still
        self._values = [live.clone() for live in self._live]

    def put_back(self) -> None:
        """All of them: what observers write by one fused kernel, their version counters don't tell."""
        for table, name, buffer, shape in self._placed:
            table[name] = buffer
            if buffer.shape != shape:
                buffer.resize_(shape)
        if self._live:
            torch._foreach_copy_(self._live, self._values)


def _is_writable(buffer: Tensor) -> bool:
    """None is that inference mode has made or that holds nothing yet, nor one with elements in the same memory."""
    if buffer.is_inference() or is_lazy(buffer):
        return False
    return buffer.layout is not torch.strided or not any(
        stride == 0 and size > 1 for stride, size in zip(buffer.stride(), buffer.shape, strict=True)
    )


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[Buffers]:
    """Eval mode without gradients; training modes, buffers and random number generators are as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    with torch.random.fork_rng(cuda_devices(model)), torch.no_grad():
        buffers = Buffers(model)
        model.eval()
        try:
            yield buffers
        finally:
            for module, training in modes:
                module.training = training
            reshard(model)
            buffers.put_back()


def gains(model: nn.Module, slot: Slot, holdout: Holdout, alpha: float) -> Tensor:
    """L(off) - L(on) per example, float64; only this slot's seed is toggled, on meaning h + alpha * delta."""
    differences = []
    with undisturbed(model) as buffers:
        try:
            for inputs, targets in holdout.batches:
                losses = []
                for forced in (0.0, alpha):
                    slot.forced = forced
                    found = holdout.loss_fn(holdout.call(model, inputs), targets)
                    losses.append(each_loss(found, targets).double().flatten())
                    buffers.put_back()
                differences.append(losses[0] - losses[1])
        finally:
            slot.forced = None
    return torch.cat(differences)


def each_loss(losses: Tensor, targets: Any) -> Tensor:
    """The losses as they are. ValueError: one number for several examples, which says nothing of how they differ."""
    if losses.dim() == 0 and isinstance(targets, Tensor) and targets.dim() and len(targets) > 1:
        raise ValueError(f"one loss for {len(targets)} examples; expected one each, as by reduction='none'")
    return losses


def interval(count: float, total: float, squares: float, error: float) -> tuple[float, float, float]:
    """(mean, low, high) from count, sum and sum of squares; each bound is one-sided at `error` (normal quantile)."""
    mean = total / count
    variance = max(squares - total * mean, 0.0) / max(count - 1.0, 1.0)
    reach = NormalDist().inv_cdf(1.0 - error) * math.sqrt(variance / count)
    return mean, mean - reach, mean + reach


def paired_gain(count: float, total: float, squares: float, error: float, batches: int) -> pb.PairedGain:
    mean, low, high = interval(count, total, squares, error)
    return pb.PairedGain(mean=mean, low=low, high=high, examples=int(count), batches=batches)
