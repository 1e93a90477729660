"""What a session does around each step of the host's optimizer, from inside it."""

from __future__ import annotations

from typing import Any

import torch

from esper.errors import SettingError, TrainingError
from esper.kasmina.pruning.pruner import Pruning
from esper.kernels.split import with_norm
from esper.session.rank_status import RankStatus
from esper.tolaria.optimizers.closures import Arguments, after_closure
from esper.tolaria.optimizers.nested import is_nested

NO_BACKWARD = -1
"""What torch says of a thread that is in none."""


def require_unsteered(optimizer: torch.optim.Optimizer) -> None:
    """Raises SettingError where a session that nobody has closed steps with this one: two would steer one loop."""
    hooks = optimizer._optimizer_step_post_hooks.values()
    if any(isinstance(getattr(hook, "__self__", None), HostHooks) for hook in hooks):
        met = f"that of a session ({type(optimizer).__name__})"
        raise SettingError("optimizer", met, "one that no session has: close() that first")


class HostHooks:
    """Looks at the host's gradients, then steps the seeds. Without a seed or a mask it does nothing.

    `stepped` tells whether the optimizer has stepped since it was set to False.
    """

    def __init__(self, status: RankStatus, pruning: Pruning, optimizer: torch.optim.Optimizer) -> None:
        self.stepped, self.step = False, 0
        self.is_idle = False  # in this step
        self._status, self._split = status, {*status.parts()}
        self._executor, self._optimizers = status.executor, status.optimizers
        self._gradients, self._pruning = status.gradients, pruning
        self._host, self._looking = optimizer, optimizer.register_step_pre_hook(self._before)
        self._following = optimizer.register_step_post_hook(self._after)
        self.looks = True

    def require_split_before(self) -> None:
        """Raises SettingError, before the first step, where a parameter was split since attach(): fully_shard puts
        others in the place of those that are kept, compared and stepped."""
        if self.step == 0 and (late := sorted({*self._status.parts()} - self._split)):
            expected = "a model that is split before its optimizer is made, and before attach()"
            raise SettingError("model", f"{late[0]}: split after attach()", expected)

    def look(self, looks: bool) -> None:
        """Whether to be called before the optimizer steps too, from the next step on."""
        if looks != self.looks:
            self._looking.remove()
            self._looking = self._host.register_step_pre_hook(self._before) if looks else self._looking
            self.looks = looks

    def begin_step(self, step: int) -> None:
        """Find out whether there is anything to do when the optimizer steps. Not called before steps that change
        nothing of it."""
        self.stepped, self.step = False, step
        busy = self._pruning.masks.held[0] or self._gradients.wanted == step
        self.is_idle = self._executor.is_dormant and not busy
        if not self.is_idle:
            self._optimizers.skip()  # of a step that raised, or of no step: another model's loss went back through this

    def end_step(self) -> None:
        """Where the host's step was skipped, by its scaler or the loop, the seeds' gradients go with it."""
        self._optimizers.give_back()
        self._executor.end_step()
        if not (self.stepped or self.is_idle):
            self._optimizers.skip()

    def remove(self) -> None:
        self._looking.remove()
        self._following.remove()

    def _before(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments | None:
        if is_nested(optimizer):
            return None
        looks = iter((self._pruning.before_optimizer_step,))  # once: a line search goes on from where the step began
        return after_closure(args, kwargs, lambda: [look(optimizer) for look in looks])

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not self.is_idle:  # the whole of most steps: to be called at all is what they cost
            self._stepped(optimizer)

    @torch._dynamo.disable  # type: ignore[untyped-decorator]  # a script may have its optimizer's step compiled
    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        if is_nested(optimizer):
            return
        self._require_no_backward()
        self.stepped = True
        if self._gradients.wanted == self.step:
            self._gradients.take((p for group in optimizer.param_groups for p in group["params"]), self.step)
        if self._pruning.masks.held[0]:
            self._pruning.after_optimizer_step()
        if self._executor.is_dormant:
            return
        self._require_slots_fired()
        learning = self._executor.learning()
        if not learning:
            return
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._optimizers.reduce(learning)
        found = self._executor.observe(with_norm(gradients), self.step)
        self._executor.note_steps(self._optimizers.step(self.step, found))

    def _require_no_backward(self) -> None:
        """A seed whose site the backward has yet to come to would step with what it has of older gradients, or none."""
        if torch._C._current_graph_task_id() != NO_BACKWARD:
            raise TrainingError(
                f"step {self.step}: the optimizer steps within a backward, as in a hook of a parameter, "
                "where the seeds have not all their gradients; step behind the backward"
            )

    def _require_slots_fired(self) -> None:
        """In each step in which a slot has a hook: one without a seed has none that could be gone past."""
        if sites := self._executor.bypassed():
            raise TrainingError(
                f"step {self.step}: no slot fired at {', '.join(sites)} although its parameters have gradients; "
                "compiled code, a fast path or a copy of the model goes past the module's hooks, or the loss reads its "
                "weights by itself, so a seed there would have no effect: leave it out of the sites"
            )
