"""Holds the host's optimizer back in steps that no lease covers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from esper.errors import SettingError
from esper.kernels.split import is_split, with_norm
from esper.tolaria.optimizers.closures import Arguments, after_closure
from esper.tolaria.optimizers.leases import Lease, Leases
from esper.tolaria.optimizers.nested import is_nested
from esper.tolaria.state.gradients import laid_out


class HostGate:
    """Between two hooks around the user's own `optimizer.step()`: in a step without a lease the groups are empty.

    So the call goes its usual way, with the hooks, closures, GradScaler and schedulers that hang on it, and finds
    nothing to step. Hooks can't skip a call; wrapping `step` hides it from schedulers and from GradScaler's own look at
    it. Gradients stay as they are: the loop's zero_grad() drops them.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        """SettingError for LBFGS, which keeps a list of its parameters beside the groups."""
        if isinstance(optimizer, torch.optim.LBFGS):
            raise SettingError("own_host", "an LBFGS", "an optimizer that reads its parameter groups at each step")
        self.leases = Leases()
        self.step = 0
        self._optimizer = optimizer
        self._held: list[list[torch.Tensor]] | None = None
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

    def begin_step(self, step: int) -> None:
        """From here on the host's optimizer is asked to take this step."""
        self.step = step
        self.show()

    def close(self) -> None:
        """Let the optimizer step freely again."""
        self.show()
        for hook in self._hooks:
            hook.remove()

    def _before_step(self, _: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        if is_nested(self._optimizer):
            return None
        self.show()  # a step that raised has left them hidden
        lease = self.leases.at(self.step)
        if lease is not None and not lease.grad_clip_norm:
            return None
        # The closure makes the gradients, and clears the old ones, so it must see the groups.
        return after_closure(args, kwargs, partial(self._prepare, lease))

    def _after_step(self, *_: object) -> None:
        if not is_nested(self._optimizer):
            self.show()

    def _prepare(self, lease: Lease | None) -> None:
        if lease is not None:
            return self._clip(lease.grad_clip_norm)
        if self._held is not None:  # a closure that is called again
            return
        self._held = [group["params"] for group in self._optimizer.param_groups]
        for group in self._optimizer.param_groups:
            group["params"] = []

    def show(self) -> None:
        """Have the groups hold their parameters again; idle unless they are hidden."""
        for group, held in zip(self._optimizer.param_groups, self._held or (), strict=False):
            group["params"] = held
        self._held = None

    @torch.no_grad()
    def _clip(self, limit: float) -> None:
        """By the norm of all gradients together, which a fused optimizer may not have unscaled yet."""
        parameters = [
            each for group in self._optimizer.param_groups for each in group["params"] if each.grad is not None
        ]
        sparse = [each for each in parameters if each.grad is not None and each.grad.is_sparse]
        for each in sparse:  # what torch gives no norm of; its values are those of the gradient itself from here on
            each.grad = each.grad.coalesce()
        norm = torch.nn.utils.get_total_norm(with_norm([laid_out(each.grad)[0] for each in parameters]))
        scale = getattr(self._optimizer, "grad_scale", None)
        norm = norm if scale is None else norm / scale
        dense = [each for each in parameters if not each.grad.is_sparse]
        for alike in ([each for each in dense if is_split(each)], [each for each in dense if not is_split(each)]):
            torch.nn.utils.clip_grads_with_norm_(alike, limit, norm)
        for each in sparse:
            each.grad.values().mul_((limit / (norm + 1e-6)).clamp(max=1.0))
