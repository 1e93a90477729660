"""Steers a training run of transformers' Trainer. Needs the extra `trainer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog
import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.hooks import RemovableHandle

from esper.errors import SettingError
from esper.session.loop import SteeredLoop
from esper.session.session import Session

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ModuleNotFoundError as error:
    raise SettingError("transformers", "not installed", "it to be: pip install 'esper[trainer]'") from error
if TYPE_CHECKING:
    from transformers import Trainer

log = structlog.get_logger()


class SteeringCallback(TrainerCallback):
    """Trainer(callbacks=[SteeringCallback(sites=["vit.layernorm"], run="digits")]): commands take effect between steps.

    Takes what esper.attach() takes beside model and optimizer; `sites` are names in the model given to the Trainer. The
    loss noted is the one in the model's output, the mean over a step's micro-batches, or their sum where the model
    divides by `num_items_in_batch`; where there is none, follow() the Trainer. Where training raises, call close(): the
    Trainer tells its callbacks nothing of it.
    """

    def __init__(self, sites: Sequence[str], **options: Any) -> None:
        self._loop = SteeredLoop(sites, options)
        self._hook: RemovableHandle | None = None
        self._follows = self._is_told = False

    @property
    def run(self) -> Session | None:
        """None before training begins."""
        return self._loop.run

    def follow(self, trainer: Trainer) -> None:
        """Note the losses that this Trainer trains on, instead of those in the model's output; call it before train().

        Label smoothing, a `compute_loss_func` and Trainers made from this one, as those of sentence-transformers and
        TRL, compute the loss outside of the model.
        """
        train = trainer.training_step

        def noted(*args: Any, **kwargs: Any) -> torch.Tensor:
            loss: torch.Tensor = train(*args, **kwargs)
            self._loop.note(loss, is_share=True)
            return loss

        self._follows, trainer.training_step = True, noted

    def close(self) -> None:
        """Leave model and optimizer to themselves."""
        if self._hook is not None:
            self._hook.remove()
        self._loop.close()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        model, optimizer, scheduler = kwargs["model"], kwargs["optimizer"], kwargs["lr_scheduler"]
        self._loop.open(
            model,
            optimizer,
            state.global_step,
            scaler=getattr(optimizer, "scaler", None),
            scheduler=scheduler if isinstance(scheduler, LRScheduler) else None,
        )
        self._hook = None if self._follows else model.register_forward_hook(self._note, with_kwargs=True)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._loop.begin()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        is_known = self._loop.end(args.train_batch_size * args.gradient_accumulation_steps)
        if not (is_known or self._is_told):
            self._is_told = True
            log.warning("loss.unknown", expected="follow(trainer) before train(): the model's output holds none")

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.run is not None:
            self.run.epoch_end()

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._loop.measured(kwargs.get("metrics") or {})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.close()

    def _note(self, model: torch.nn.Module, args: object, kwargs: Mapping[str, Any], output: Any) -> None:
        loss = output.get("loss") if isinstance(output, Mapping) else None
        if model.training and isinstance(loss, torch.Tensor) and loss.requires_grad:
            self._loop.note(loss, is_share=kwargs.get("num_items_in_batch") is not None)
