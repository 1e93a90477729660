"""Steers a training run of Lightning. Needs the extra `lightning`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from esper.errors import SettingError
from esper.session.loop import SteeredLoop, num_examples
from esper.session.session import Session

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError as error:
    raise SettingError("lightning", "not installed", "it to be: pip install 'esper[lightning]'") from error


class SteeringCallback(Callback):
    """Trainer(callbacks=[SteeringCallback(sites=["net.2"], run="digits")]): commands take effect between steps.

    Takes what esper.attach() takes beside model and optimizer; `sites` are names in the LightningModule, which must
    have one optimizer (else SettingError, before the first step). The loss noted is training_step's, the mean over a
    step's micro-batches.
    """

    def __init__(self, sites: Sequence[str], **options: Any) -> None:
        self._loop = SteeredLoop(sites, options)
        self._num_steps, self._num_examples = 0, 0

    @property
    def run(self) -> Session | None:
        """None before training begins."""
        return self._loop.run

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if len(trainer.optimizers) != 1:
            raise SettingError("configure_optimizers()", f"{len(trainer.optimizers)} optimizers", "one optimizer")
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        self._num_steps = trainer.global_step
        self._loop.open(
            pl_module,
            trainer.optimizers[0],
            trainer.global_step,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            scheduler=[each for each in schedulers if isinstance(each, torch.optim.lr_scheduler.LRScheduler)] or None,
        )

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._loop.begin()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, torch.Tensor):  # which Lightning has divided by the number of micro-batches
            self._loop.note(loss * trainer.accumulate_grad_batches)
        self._num_examples += num_examples(batch)
        if trainer.global_step > self._num_steps:  # the others were micro-batches
            self._num_steps = trainer.global_step
            self._loop.end(self._num_examples)
            self._num_examples = 0

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._loop.measured(trainer.callback_metrics)
        if self.run is not None:
            self.run.epoch_end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._loop.close()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._loop.close()
