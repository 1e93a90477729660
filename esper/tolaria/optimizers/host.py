"""The host's optimizer, adopted as the training script built it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from esper.kernels.split import is_split
from esper.tolaria.optimizers import moments, schedulers
from esper.tolaria.optimizers.moments import Moments
from esper.tolaria.optimizers.overrides import Group, Overrides
from esper.tolaria.state.bank import Bank


@dataclass(frozen=True, slots=True)
class KeptHost:
    """The parameters that the host's optimizer had at one step, and what it remembered of them."""

    parameters: list[torch.Tensor]
    moments: Moments


class HostOptimizer:
    """Never rebuilt: parameters come and go, values are overridden, moments are cleared in the optimizer itself."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        announce: Callable[[Sequence[torch.nn.Parameter]], None],
        followed: Sequence[LRScheduler] = (),
    ) -> None:
        """`followed` are the schedulers whose lists per group are to follow the groups that fossils bring."""
        self.torch = optimizer
        self.overrides = Overrides(optimizer)
        self._announce = announce
        self._followed = followed
        self._joined: set[torch.Tensor] = set()

    def effective(self) -> dict[str, float]:
        return self.overrides.effective()

    def learning_rate(self) -> float | torch.Tensor:
        return self.overrides.learning_rate()

    def clear(self) -> None:
        """Forget all moments, as if it had just been built."""
        moments.forget(self.torch)

    def takes(self, parameter: torch.Tensor) -> bool:
        """Whether it can step one that joins: LBFGS has one group for good, and others want gradients of a kind.

        None that every rank holds whole beside split ones: torch clips the gradients of no such mixture.
        """
        if any(map(is_split, self.parameters())) and not is_split(parameter):
            return False
        if isinstance(self.torch, (torch.optim.LBFGS, torch.optim.SparseAdam)):
            return False
        return parameter.ndim == 2 or not _is_muon(self.torch) or _has_vector(self._joined_group())

    def add(self, named: Sequence[tuple[str, torch.nn.Parameter]]) -> None:
        """Train these too: in a group of their own, or in the last one where an unknown scheduler counts the groups.

        torch's schedulers zip their base values with the groups strictly, so one that was built earlier would raise
        at its next step over a group that it does not know.
        """
        if not named:
            return
        self._joined |= {parameter for _, parameter in named}
        joined = self._joined_group()
        if self._counted_elsewhere():
            joined["params"].extend(parameter for _, parameter in named)
            joined.get("param_names", []).extend(name for name, _ in named)
            moments.even_out(self.torch, joined)
        else:
            before = len(self.torch.param_groups)
            given = list(named) if "param_names" in joined else [parameter for _, parameter in named]
            self.torch.add_param_group({**_alike(joined), "params": given})
            schedulers.extend(self._followed, before)
        self._announce([parameter for _, parameter in named])

    def remove(self, parameters: Sequence[torch.Tensor]) -> None:
        """The inverse of `add`: their state goes too, and a group of nothing else, with its places in schedulers."""
        gone = set(parameters)
        self._joined -= gone
        for parameter in gone:
            self.torch.state.pop(parameter, None)
        for number, group in reversed([*enumerate(self.torch.param_groups)]):
            if gone.isdisjoint(group["params"]):
                continue
            _keep_only(group, set(group["params"]) - gone)
            if not group["params"] and not self._counted_elsewhere():
                del self.torch.param_groups[number]
                schedulers.drop(self._followed, number)

    def _joined_group(self) -> dict[str, Any]:
        """The one that a fossil is trained as: the last, or in a Muon with vectors the last that it steps as AdamW."""
        groups = self.torch.param_groups
        held = [group for group in groups if _has_vector(group)] if _is_muon(self.torch) else []
        return (held or groups)[-1]

    def _counted_elsewhere(self) -> bool:
        """Whether a scheduler that we do not know counts the groups."""
        return hasattr(self.torch.step, "_wrapped_by_lr_sched") and not self._followed

    def take_over(self, source: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> None:
        """Go on from the moments that a seed's optimizer has of these, which have just joined, where it can."""
        if moments.hand_on(source, self.torch, parameters):
            moments.even_out(self.torch, self.torch.param_groups[-1])

    def snapshot(self, bank: Bank) -> KeptHost:
        parameters = self.parameters()
        return KeptHost(parameters, moments.keep(self.torch, parameters, bank))

    def restore(self, kept: KeptHost) -> None:
        """Put moments back; parameters that joined since leave. Hyperparameters stay as they are now.

        So do groups that the script has made since: it would go on as if they were there, and nobody train them.
        """
        self.remove([*self._joined.difference(kept.parameters)])
        moments.put_back(self.torch, kept.parameters, kept.moments)
        for parameter in {*kept.parameters}.difference(self.parameters()):  # the script has put others in their place
            self.torch.state.pop(parameter, None)

    def parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.torch.param_groups for parameter in group["params"]]

    def named(self) -> list[tuple[str, torch.Tensor]]:
        """By the names that they were given with, else by group and place in it."""
        found: list[tuple[str, torch.Tensor]] = []
        for number, group in enumerate(self.torch.param_groups):
            names = group.get("param_names") or [f"{number}.{place}" for place in range(len(group["params"]))]
            found += zip(names, group["params"], strict=True)
        return found

    def close(self) -> None:
        """Leave the optimizer without a hook of ours."""
        self.overrides.close()


def _is_muon(optimizer: torch.optim.Optimizer) -> bool:
    """Torch's or anybody's: its step orthogonalises matrices, and raises over a vector."""
    return any("Muon" in kind.__name__ for kind in type(optimizer).__mro__)


def _has_vector(group: dict[str, Any]) -> bool:
    return any(parameter.ndim < 2 for parameter in group["params"])


def _alike(group: Group) -> Group:
    """Its settings, with tensors of their own: a rate that is a tensor is written in place."""
    settings = {name: value for name, value in group.items() if name not in ("params", "param_names")}
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in settings.items()}


def _keep_only(group: dict[str, list[object]], stay: set[torch.Tensor]) -> None:
    kept = [index for index, parameter in enumerate(group["params"]) if parameter in stay]
    for name in ("params", "param_names"):
        if name in group:
            group[name] = [group[name][index] for index in kept]
