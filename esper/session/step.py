"""One step of a training loop."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

import torch


class Stepped(Protocol):
    """What a step is a step of."""

    def begin_step(self) -> None: ...
    def end_step(self, loss: torch.Tensor | float | None, step_ms: float) -> None: ...
    def note_examples(self, num_examples: int) -> None: ...


class Step:
    """One optimizer step with all its micro-batches. Commands take effect on entry."""

    __slots__ = ("_loss", "_session", "_started")

    def __init__(self, session: Stepped) -> None:
        self._session = session
        self._loss: torch.Tensor | float | None = None
        self._started = 0.0

    def __enter__(self) -> Step:
        self._loss = None
        self._session.begin_step()
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self._session.end_step(self._loss, (time.perf_counter() - self._started) * 1e3)

    def loss(self, loss: torch.Tensor, *, examples: int = 0) -> None:
        """Note the step's loss, a 0-dim tensor; one on a device is read at the next flush: nothing synchronises here.

        `examples` says how many of them this rank has trained on in this step, for whoever watches its speed.
        """
        # On the host's processor to read it is to wait for nothing, and a number costs less to keep than a tensor.
        self._loss = loss.item() if loss.is_cpu and type(loss) is torch.Tensor else loss.detach()
        if examples:
            self._session.note_examples(examples)
