"""The host's optimizer, adopted as the training script built it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from esper.tolaria import moments
from esper.tolaria.bank import Bank
from esper.tolaria.moments import Moments
from esper.tolaria.overrides import Overrides


@dataclass(frozen=True, slots=True)
class KeptHost:
    """The parameters that the host's optimizer had at one step, and what it remembered of them."""

    parameters: list[torch.Tensor]
    moments: Moments


class HostOptimizer:
    """Never rebuilt: parameters come and go, values are overridden, moments are cleared in the optimizer itself."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, announce: Callable[[Sequence[torch.nn.Parameter]], None]
    ) -> None:
        self.torch = optimizer
        self.overrides = Overrides(optimizer)
        self._announce = announce

    def add(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Train these too: in a group of their own, or in the last one where a scheduler counts the groups.

        torch's schedulers zip their base values with the groups strictly, so one that was built earlier would raise
        at its next step over a group that it does not know.
        """
        if not parameters:
            return
        last = self.torch.param_groups[-1]
        if hasattr(self.torch.step, "_wrapped_by_lr_sched"):
            last["params"].extend(parameters)
        else:
            self.torch.add_param_group({**last, "params": list(parameters)})
        self._announce(parameters)

    def snapshot(self, bank: Bank) -> KeptHost:
        parameters = self._parameters()
        return KeptHost(parameters, moments.keep(self.torch, parameters, bank))

    def restore(self, kept: KeptHost) -> None:
        """Put moments back; parameters that joined since leave the groups. Hyperparameters stay as they are now."""
        stay = {id(parameter) for parameter in kept.parameters}
        for parameter in self._parameters():
            if id(parameter) not in stay:
                self.torch.state.pop(parameter, None)
        for group in self.torch.param_groups:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) in stay]
        self.torch.param_groups[:] = [group for group in self.torch.param_groups if group["params"]]
        moments.put_back(self.torch, kept.parameters, kept.moments)

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.torch.param_groups for parameter in group["params"]]
