"""Callbacks for transformers' Trainer and Lightning: apart from the tests, of which few are to import those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback
from transformers import TrainerCallback


def newest_loss(steering: Any) -> float | None:
    """That the callback's session has told of the step just ended; None: none."""
    told = steering.run.status.rows.table()
    loss: float | None = dict(zip(told.names, told.values, strict=True)).get("loss")
    return loss


class AfterStepsOfTrainer(TrainerCallback):
    """Calls `then` with the number of steps taken, after each; True ends the training."""

    def __init__(self, then: Callable[[int], bool]) -> None:
        self.then = then

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.then(state.global_step):
            control.should_training_stop = True


class AfterStepsOfLightning(Callback):
    """The same, where a step is two micro-batches."""

    def __init__(self, then: Callable[[int], bool]) -> None:
        self.then = then

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % 2 == 1 and self.then(trainer.global_step):
            trainer.should_stop = True
