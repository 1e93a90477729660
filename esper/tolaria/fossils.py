"""Gradients of fossils, averaged over ranks before backward() returns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.autograd import Variable

Reduce = Callable[[torch.Tensor], torch.Tensor]


class FossilGradients:
    """Averages what DDP does not know: parameters that joined the model after it was wrapped.

    `reduce` returns the mean of a flat tensor over ranks. One call per backward, queued to run when the
    engine has finished, so that clipping and the optimizer see the same gradients on every rank. A fossil fires in
    every forward of its site, so every rank's backward queues the call or none does.
    """

    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce
        self._parameters: list[torch.nn.Parameter] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._queued: set[int] = set()  # backward passes, by the engine's number: one that raised never runs its call

    @property
    def adopted(self) -> list[torch.nn.Parameter]:
        return list(self._parameters)

    def adopt(self, parameters: list[torch.nn.Parameter]) -> None:
        """Average these from the next backward on."""
        self._parameters += parameters
        for parameter in parameters:
            hook = parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]
            self._hooks.append(hook)

    def release(self) -> None:
        """Forget every fossil: the user has re-wrapped the model, or rolled back to before them."""
        for hook in self._hooks:
            hook.remove()
        self._parameters, self._hooks = [], []

    def _on_gradient(self, _parameter: torch.Tensor) -> None:
        backward = torch._C._current_graph_task_id()
        if backward not in self._queued:
            self._queued.add(backward)
            Variable._execution_engine.queue_callback(partial(self._average, backward))

    def _average(self, backward: int) -> None:
        self._queued.discard(backward)
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if not gradients:
            return
        flat = self._reduce(torch.cat([gradient.flatten() for gradient in gradients]))
        offset = 0
        for gradient in gradients:
            gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
            offset += gradient.numel()
