"""The optimizer of one seed: its own group, rate and warm-up, with leases and counts of what was skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from esper.tolaria.optimizers import moments
from esper.tolaria.optimizers.kinds import ADAMW_8BIT, STATE_BITS, Kind, kind_of
from esper.tolaria.optimizers.leases import Leases
from esper.tolaria.optimizers.moments import Moments, State
from esper.tolaria.optimizers.overrides import Overrides
from esper.tolaria.state.bank import Bank

Named = list[tuple[str, torch.nn.Parameter]]


@dataclass(frozen=True, slots=True)
class KeptSeedOptimizer:
    """What a rollback puts back; by parameter name, as the seed may be built anew meanwhile."""

    kind: str
    names: list[str]
    hyperparameters: dict[str, float]  # what `create` takes to make the same optimizer again
    moments: Moments
    num_taken: int


class SeedOptimizer:
    """Parameters of one seed and what an optimizer remembers of them. Stepped with the others, by JointStep."""

    def __init__(self, optimizer_id: str, named: Named, given: Mapping[str, float]) -> None:
        """RefusedError where a hyperparameter does not fit. `given` also chooses the kind: see kind_of."""
        self.optimizer_id = optimizer_id
        self.kind: Kind = kind_of(optimizer_id, given)
        in_half = any(parameter.dtype == torch.float16 for _, parameter in named)
        self.values = self.kind.complete(optimizer_id, given, in_half=in_half)
        self.in_half = in_half and not self.kind.wide
        self.warmup_steps = int(self.values.pop("warmup_steps"))
        self.names = [name for name, _ in named]
        self.parameters: list[torch.Tensor] = [parameter for _, parameter in named]
        self.torch = self.kind.make(self.parameters, self.kind.group(self.values))
        self.overrides = Overrides(self.torch)
        self.leases = Leases()
        self.num_taken = self.num_dropped = self.num_non_finite = 0
        self.num_in_row = 0  # steps that it could not take, since the last that it took

    def gradients(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def in_force(self) -> dict[str, float]:
        """The values of the next step: those it was created with, warmed up, and what a command has set over them."""
        return {**self.values, "lr": self._warmed_up(), **self.overrides.values}

    def effective(self) -> dict[str, float]:
        """Those of `in_force` that may be steered."""
        values = self.in_force()
        return {name: values[name] for name in self.overrides.effective()}

    def learning_rate(self) -> float:
        return self.overrides.values.get("lr", self._warmed_up())

    def left_out(self) -> dict[str, float]:
        """How many steps were not taken, by the reason for it."""
        counts = {"steps_dropped": self.num_dropped, "steps_non_finite": self.num_non_finite}
        return {name: float(count) for name, count in counts.items() if count}

    def lend(self, states: dict[torch.Tensor, State]) -> None:
        """Add what is remembered of each parameter that has a gradient; the entries stay this optimizer's own."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                states[parameter] = self.torch.state[parameter]

    def clear(self) -> None:
        """Forget all moments and warm up anew, as if just created."""
        self.torch.state.clear()
        self.num_taken = 0

    def keep(self, bank: Bank) -> KeptSeedOptimizer:
        given = {**self.values, "warmup_steps": float(self.warmup_steps)}
        if self.kind is ADAMW_8BIT:
            given[STATE_BITS] = 8.0
        held = moments.keep(self.torch, self.parameters, bank)
        return KeptSeedOptimizer(self.kind.name, self.names, given, held, self.num_taken)

    def put_back(self, named: Named, kept: KeptSeedOptimizer) -> None:
        """Remember what was kept, for the parameters that bear those names now."""
        by_name = dict(named)
        self.names, self.num_taken = kept.names, kept.num_taken
        self.parameters = [by_name[name] for name in kept.names]
        self.torch.state.clear()
        self.torch.param_groups[0]["params"] = list(self.parameters)
        moments.put_back(self.torch, self.parameters, kept.moments)

    def _warmed_up(self) -> float:
        """Linear from lr / warmup_steps at the first step to lr at step warmup_steps, counted in steps taken."""
        share = min(1.0, (self.num_taken + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        return self.values["lr"] * share
