"""Held-out examples as a training script gives them, refused in one line where they are something else."""

from __future__ import annotations

from typing import Any

import structlog
from torch import Tensor

from esper.errors import SettingError
from esper.kasmina.gates.ablation import Holdout

log = structlog.get_logger()

EXPECTED = (
    "([(inputs, targets), ...], loss), where loss(model(inputs), targets) is one loss per example;"
    " (batches, loss, call) has call(model, inputs) for model(inputs)"
)
WALKED = ("__iter__", "__getitem__")


def held_out(given: Any, min_examples: int) -> Holdout | None:
    """None stays None. Fewer than `min_examples` are taken, and told of: no seed passes G4 on them. SettingError."""
    match given:
        case None:
            return None
        case (batches, loss_fn, *call) if _are_of_use(batches, loss_fn, call):
            made = tuple(batches)
        case _:
            raise SettingError("holdout", kind_of(given), EXPECTED)
    for batch in made:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise SettingError("batch of holdout", kind_of(batch), EXPECTED)
    counts = [len(targets) for _, targets in made if isinstance(targets, Tensor) and targets.dim()]
    if (reduction := getattr(loss_fn, "reduction", "none")) != "none" and max(counts, default=0) > 1:
        raise SettingError("reduction of holdout's loss", reduction, "'none': one loss per example")
    if len(counts) == len(made) and 0 < sum(counts) < min_examples:
        log.warning("holdout.too_small", num_examples=sum(counts), expected=min_examples)
    return Holdout(made, loss_fn, *call)


def _are_of_use(batches: Any, loss_fn: Any, call: list[Any]) -> bool:
    return len(call) < 2 and all(map(callable, (loss_fn, *call))) and any(hasattr(batches, each) for each in WALKED)


def kind_of(given: object) -> str:
    """tuple of Tensor, Tensor."""
    parts = ", ".join(type(part).__name__ for part in given) if isinstance(given, tuple | list) else ""
    return f"{type(given).__name__} of {parts}" if parts else type(given).__name__
