"""What a seed is worth: loss with it off and on, on the same held-out examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn

from esper.kasmina.slot import Slot
from esper.kernels.split import reshard
from esper.leyline import contracts as pb


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


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradients; training modes and random number generators are as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    with torch.random.fork_rng(cuda_devices(model)), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
            reshard(model)


def gains(model: nn.Module, slot: Slot, holdout: Holdout, alpha: float) -> Tensor:
    """L(off) - L(on) per example, float64; only this slot's seed is toggled, on meaning h + alpha * delta."""
    differences = []
    with undisturbed(model):
        try:
            for inputs, targets in holdout.batches:
                losses = []
                for forced in (0.0, alpha):
                    slot.forced = forced
                    found = holdout.loss_fn(holdout.call(model, inputs), targets)
                    losses.append(each_loss(found, targets).double().flatten())
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
