"""Hyperparameters that win over the user's scheduler for as long as they are set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import torch
from torch.utils.hooks import RemovableHandle

from esper.tolaria.optimizers.closures import Arguments, unless_it_raises
from esper.tolaria.optimizers.nested import is_nested

Group = dict[str, object]
BETAS = ("beta1", "beta2")


def hyperparameters(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """The numbers of an optimizer's first parameter group; the pair `betas` as beta1 and beta2."""
    return {name: value for group in optimizer.param_groups[:1] for name, value in numbers(group).items()}


def numbers(group: Group) -> dict[str, float]:
    """What may be steered in this group. Switches and lists are no hyperparameters."""
    found = {name: float(value) for name, value in group.items() if _is_number(value)}
    betas = group.get("betas")
    if isinstance(betas, tuple):
        found.update(zip(BETAS, map(float, betas), strict=True))
    return found


def write(group: Group, name: str, value: float) -> None:
    """Set one hyperparameter; a tensor is filled in place, as captured and compiled steps hold on to it."""
    if name in BETAS:
        betas = group["betas"]
        assert isinstance(betas, tuple)
        group["betas"] = (value, betas[1]) if name == "beta1" else (betas[0], value)
    elif isinstance(held := group[name], torch.Tensor):
        held.fill_(value)
    else:
        group[name] = value


class Overrides:
    """Puts the values set by command into an optimizer just before it steps, and the user's back just after.

    Between steps the groups hold the user's own values, so that a scheduler which computes the next value from the
    present one is not led astray, and a release needs no memory of what the value would have become.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.values: Mapping[str, float] = {}
        self._optimizer = optimizer
        self._users: list[dict[str, float]] = []
        self._hooks: list[RemovableHandle] = []

    def set(self, values: Mapping[str, float]) -> None:
        """These and no other, from the next step on. Hooks hang on the optimizer only while there are any."""
        self.values = dict(values)
        if values and not self._hooks:
            self._hooks = [
                self._optimizer.register_step_pre_hook(self._before_step),
                self._optimizer.register_step_post_hook(self._after_step),
            ]
        elif not values:
            self.close()

    def close(self) -> None:
        """Leave the optimizer as it was: its groups hold the user's values, and no hook of ours."""
        self.put_back()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def effective(self) -> dict[str, float]:
        """The values that the next step will use, of the first group."""
        known = hyperparameters(self._optimizer)
        return {name: self.values.get(name, value) for name, value in known.items()}

    def learning_rate(self) -> float | torch.Tensor:
        """Of the next step, first group, without waiting for the device. Cheap: it is asked for at every step."""
        if (commanded := self.values.get("lr")) is not None:
            return commanded
        rate: float | torch.Tensor = self._optimizer.param_groups[0]["lr"]
        return rate.detach().clone() if isinstance(rate, torch.Tensor) else rate

    def unknown(self, names: list[str]) -> list[str]:
        """Those names that some group of this optimizer lacks."""
        return [name for name in names if any(name not in numbers(group) for group in self._optimizer.param_groups)]

    def put_back(self) -> None:
        """Return the user's values to the groups; idle unless a step was cut short."""
        for group, users in zip(self._optimizer.param_groups, self._users, strict=False):
            for name, value in users.items():
                write(group, name, value)
        self._users = []

    def _before_step(self, _: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        if is_nested(self._optimizer):
            return None
        self.put_back()
        for group in self._optimizer.param_groups:
            present = numbers(group)
            self._users.append({name: _own(group, name, present[name]) for name in self.values if name in present})
            for name in self._users[-1]:
                write(group, name, self.values[name])
        return unless_it_raises(args, kwargs, self.put_back)

    def _after_step(self, *_: object) -> None:
        if not is_nested(self._optimizer):
            self.put_back()


def _own(group: Group, name: str, value: float) -> float:
    """What the group holds; a number without a fraction stays one of Python's kind."""
    held = group.get(name)
    return held if isinstance(held, int) else value


def _is_number(value: object) -> TypeGuard[float | torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)
