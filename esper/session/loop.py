"""A run whose steps a framework's loop begins and ends; what the callbacks for such loops share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import structlog
import torch

from esper.session.attach import attach
from esper.session.session import Session, Step

log = structlog.get_logger()


class SteeredLoop:
    """Opens a run when a loop starts, and cuts it into optimizer steps. Knows no framework.

    `options` are those of esper.attach(), but for the model and its optimizer, which the loop makes.
    """

    def __init__(self, sites: Sequence[str], options: Mapping[str, Any]) -> None:
        self.sites, self.options = list(sites), dict(options)
        self.run: Session | None = None
        self._step: Step | None = None
        self._losses: list[torch.Tensor] = []
        self._are_shares = False

    def open(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, num_steps: int, **found: Any) -> None:
        """`num_steps` and `found` are what the loop knows of itself, such as its scaler; what the user said wins."""
        known = {name: value for name, value in found.items() if value is not None}
        self.run = attach(model, optimizer=optimizer, sites=self.sites, **(known | self.options))
        if (resumed := self.run.step_number - 1) and not num_steps:  # its own resume may be some steps behind
            expected = "to resume with the run: it trains all steps again, beside a schedule that goes on"
            log.warning("trainer.counts_anew", run_steps=resumed, trainer_steps=0, expected=expected)

    def begin(self) -> None:
        """Before the first micro-batch of a step; before the others it does nothing."""
        if self.run is not None and self._step is None:
            self._step = self.run.step().__enter__()

    def note(self, loss: torch.Tensor, *, is_share: bool = False) -> None:
        """Of one micro-batch; the step's loss is their mean, or their sum where each is a share of it."""
        if self._step is not None:
            self._losses.append(loss.detach())
            self._are_shares = is_share

    def end(self, examples: int = 0) -> bool:
        """After the optimizer has stepped on so many examples; 0: not known. False where no loss was noted."""
        if self._step is None:
            return True
        if is_known := bool(self._losses):
            losses = torch.stack(self._losses)
            self._step.loss(losses.sum() if self._are_shares else losses.mean(), examples=examples)
        step, self._step, self._losses = self._step, None, []
        step.__exit__(None, None, None)
        return is_known

    def measured(self, figures: Mapping[str, Any]) -> None:
        """Numbers among what an evaluation gave; `eval_accuracy` and `val_accuracy` count as accuracy too."""
        if self.run is None:
            return
        every = dict(_numbers(figures))
        known = [every[name] for name in ("eval_accuracy", "val_accuracy") if name in every]
        self.run.note(**every | ({"accuracy": known[-1]} if known else {}))

    def close(self) -> None:
        """Leave the model to itself. May be called twice."""
        self._step, self._losses = None, []
        if self.run is not None:
            self.run.close()


def _numbers(figures: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Those that are one number each."""
    for name, value in figures.items():
        if isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1):
            yield name, float(value)


def num_examples(batch: object) -> int:
    """First dimension of the first tensor in a batch, depth first; 0 where there is none."""
    match batch:
        case torch.Tensor():
            return batch.shape[0] if batch.ndim else 0
        case Mapping():
            return next(filter(None, map(num_examples, batch.values())), 0)
        case list() | tuple():
            return next(filter(None, map(num_examples, batch)), 0)
        case _:
            return 0
