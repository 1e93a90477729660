"""The boundary to code that is anybody's: a blueprint's, and what a script measures by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.utils.checkpoint import _StopRecomputationError

from esper.errors import first_bytes
from esper.kernels.regional import Forward

MOST_BYTES = 1000

Made = TypeVar("Made")


class BlueprintFault:
    """What such code raised, as far as it goes into votes, receipts and reports: compilers say many thousand bytes."""

    def __init__(self, error: Exception) -> None:
        self.detail = first_bytes(f"{type(error).__name__}: {error}", MOST_BYTES)


def guarded(call: Callable[..., Made], *args: Any) -> Made | BlueprintFault:
    """The one boundary to anybody's code beside the host's training: whatever it raises must not stop that."""
    try:
        return call(*args)
    except _StopRecomputationError:  # how checkpointing ends a recomputation early: the host's doing
        raise
    except Exception as error:  # noqa: BLE001
        return BlueprintFault(error)


def delta_of(module: Callable[[Tensor, Tensor], Tensor], x: Tensor, h: Tensor) -> Tensor | BlueprintFault:
    """Run a seed's module."""
    delta: Any = guarded(module, x, h)
    if isinstance(delta, Tensor | BlueprintFault):
        return delta
    return BlueprintFault(TypeError(f"delta is a {type(delta).__name__}; expected a tensor"))


def regional_delta(region: Forward, module: nn.Module, x: Tensor, h: Tensor) -> Tensor | BlueprintFault:
    """Run a seed's module in the code that was compiled for its structure."""
    return delta_of(partial(region, module), x, h)
