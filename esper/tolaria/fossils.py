"""Gradients of fossils, averaged over ranks before backward() returns."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.autograd import Variable
from torch.autograd.graph import get_gradient_edge
from torch.nn.parallel import DistributedDataParallel

Reduce = Callable[[Tensor], Tensor]
TensorsIn = Callable[[object], Iterable[Tensor]]


def _nothing(_output: object) -> Iterable[Tensor]:
    return ()


class FossilGradients:
    """Averages what DDP does not know: parameters that joined the model after it was wrapped.

    `reduce` returns the mean of a flat tensor over ranks; None: there is one rank. One call per backward, queued to
    run when the engine has finished, so that clipping and the optimizer see the same gradients on every rank. Which
    backward that is must not hang on what a batch went through, as a fossil's site may be left out on one rank: it is
    each one of an output of `host`. None is where DDP reduces none, as one rank may run it alone: below no_sync(), of
    a forward beside DDP, in torch.autograd.grad().

    A hook on the host is compiled with it, and then sees no output; one on the DDP around it still does.
    """

    def __init__(
        self,
        reduce: Reduce | None,
        host: nn.Module | None = None,
        tensors_in: TensorsIn = _nothing,
        around: DistributedDataParallel | None = None,
    ) -> None:
        """Without a host, or where its forward is never called, it is each backward that reaches a fossil. `around`:
        the DDP that the host was given in."""
        self._reduce, self._host, self._tensors_in, self._given = reduce, host, tensors_in, around
        self._parameters: list[nn.Parameter] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._queued: set[int] = set()  # backward passes, by the engine's number: one that raised never runs its call
        self.is_seen = False  # by the hook on the host: its newest forward with gradients; no compiled one is
        self._is_below_ddp = False  # or was once
        self._around: Callable[[], nn.Module | None] = lambda: None  # the DDP of the newest forward
        self._known: set[int] = set()  # parameters of that

    @property
    def adopted(self) -> list[nn.Parameter]:
        return list(self._parameters)

    def adopt(self, parameters: list[nn.Parameter]) -> None:
        """Average these from the next forward on."""
        self._parameters += parameters
        if self._reduce is None or not parameters:
            return
        if self._host is not None and not self._hooks:
            self._hooks.append(self._host.register_forward_hook(AtOutput(self)))
            if self._given is not None:
                self._hooks.append(self._given.register_forward_hook(AroundOutput(self)))
        for parameter in parameters:
            hook = parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]
            self._hooks.append(hook)

    def release(self) -> None:
        """Forget every fossil: the run has ended, or rolled back to before them."""
        for hook in self._hooks:
            hook.remove()
        self._parameters, self._hooks, self.is_seen = [], [], False

    def on_forward(self, output: object) -> None:
        """Of the host; its backward is averaged if DDP reduces it too."""
        self._follow(output, DistributedDataParallel._active_ddp_module)

    def on_ddp_forward(self, output: object) -> None:
        """Of the DDP that the host was given in: the host's own was not seen where it is compiled."""
        if not self.is_seen:
            self._follow(output, self._given)

    def _follow(self, output: object, wrapped: DistributedDataParallel | None) -> None:
        if wrapped is not None and wrapped is not self._around():
            self._look_at(wrapped)
        if self._is_below_ddp and wrapped is None:
            return
        self.is_seen = True
        if wrapped is not None and not wrapped.require_backward_grad_sync:
            return
        for tensor in self._tensors_in(output):
            if tensor.grad_fn is not None:
                tensor.register_hook(self._on_output)  # type: ignore[no-untyped-call]

    def _look_at(self, wrapped: DistributedDataParallel) -> None:
        """One that the model was wrapped in anew reduces the fossils of before by itself."""
        self._is_below_ddp, self._around = True, weakref.ref(wrapped)
        self._known = {id(each) for each in wrapped._module_parameters}

    def _on_output(self, _gradient: Tensor) -> None:
        assert self._host is not None  # it is an output of it
        # Of a backward without `inputs` it is known at once, also where all is recomputed in nested ones.
        is_whole = torch.autograd._is_checkpoint_valid()  # type: ignore[no-untyped-call]
        if is_whole or any(map(_is_written, self._host.parameters())):
            self._queue()

    def _on_gradient(self, _parameter: Tensor) -> None:
        if not self.is_seen:
            self._queue()

    def _queue(self) -> None:
        backward = torch._C._current_graph_task_id()
        if backward not in self._queued:
            self._queued.add(backward)
            Variable._execution_engine.queue_callback(partial(self._average, backward))

    def _average(self, backward: int) -> None:
        self._queued.discard(backward)
        parameters = [each for each in self._parameters if id(each) not in self._known]
        if parameters and self._reduce is not None:
            _unflatten(self._reduce(_flatten(parameters)), parameters)


def _is_written(parameter: nn.Parameter) -> bool:
    """Whether the backward under way adds to this one's gradient."""
    if not parameter.requires_grad:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(get_gradient_edge(parameter).node))
    except RuntimeError:  # torch.autograd.grad() was asked for its gradient
        return False


def _flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Gradients, zeros where there is none, and then for each whether there is one; on the device of the first."""
    device = parameters[0].device
    pieces = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
    flags = torch.tensor([float(each.grad is not None) for each in parameters], device=device)
    return torch.cat([*(each.flatten().to(device) for each in pieces), flags])


def _unflatten(flat: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """One that no rank has a gradient of keeps none. Waits for the device only where there is one without."""
    sizes = [each.numel() for each in parameters]
    *means, flags = flat.split([*sizes, len(parameters)])  # type: ignore[no-untyped-call]
    for number, (parameter, mean) in enumerate(zip(parameters, means, strict=True)):
        if parameter.grad is not None:
            parameter.grad.copy_(mean.view_as(parameter))
        elif float(flags[number]):
            parameter.grad = mean.view_as(parameter).to(parameter.device, parameter.dtype)


class AtOutput:
    """The hook on the host. A copy of it does nothing, deep or pickled: copies of the host are averaged by nobody."""

    def __init__(self, fossils: FossilGradients | None) -> None:
        self.fossils = fossils

    def __reduce__(self) -> tuple[type[AtOutput], tuple[None]]:
        return AtOutput, (None,)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        if self.fossils is None or not torch.is_grad_enabled():
            return
        if torch.compiler.is_compiling():
            self.fossils.is_seen = False
        elif not torch._C._are_functorch_transforms_active():  # no backward below one writes to a parameter
            self.fossils.on_forward(output)


class AroundOutput(AtOutput):
    """The hook on the DDP around the host, where there is one. Compiled code calls it as it is."""

    @_disable_dynamo
    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        if self.fossils is not None and torch.is_grad_enabled():
            self.fossils.on_ddp_forward(output)
