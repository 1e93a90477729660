"""The optimizer of one seed: AdamW, with leases and a guard against what is not finite."""

from __future__ import annotations

import torch

from esper.tolaria import moments
from esper.tolaria.bank import Bank
from esper.tolaria.leases import Lease, Leases
from esper.tolaria.moments import Moments
from esper.tolaria.overrides import Overrides, hyperparameters

DEFAULTS = {"lr": 1e-3, "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}

Named = list[tuple[str, torch.nn.Parameter]]


class SeedOptimizer:
    """Steps one seed's parameters, whose gradients hold the mean over all ranks by then."""

    def __init__(self, named: Named, values: dict[str, float]) -> None:
        self.names = [name for name, _ in named]
        self.torch = _adamw([parameter for _, parameter in named], values)
        self.overrides = Overrides(self.torch)
        self.leases = Leases()
        self.num_dropped = self.num_non_finite = 0

    def step(self, step: int) -> None:
        """Take a step if there is a gradient, it is finite and a lease covers it; clear the gradients in any case."""
        gradients = [parameter.grad for parameter in self._parameters() if parameter.grad is not None]
        if not gradients:
            return
        lease = self.leases.at(step)
        if lease is None:
            self.num_dropped += 1
        elif not _finite(gradients):  # reduced, hence judged alike on every rank
            self.num_non_finite += 1
        else:
            self._take(lease)
        self.torch.zero_grad(set_to_none=True)

    def keep(self, bank: Bank) -> tuple[list[str], dict[str, float], Moments]:
        values = {name: value for name, value in hyperparameters(self.torch).items() if name in DEFAULTS}
        return self.names, values, moments.keep(self.torch, self._parameters(), bank)

    def put_back(self, named: Named, names: list[str], kept: Moments) -> None:
        """Remember what was kept, for the parameters that bear those names now."""
        by_name = dict(named)
        parameters: list[torch.Tensor] = [by_name[name] for name in names]
        self.names = names
        self.torch.state.clear()
        self.torch.param_groups[0]["params"] = parameters
        moments.put_back(self.torch, parameters, kept)

    def _take(self, lease: Lease) -> None:
        if lease.grad_clip_norm:
            torch.nn.utils.clip_grad_norm_(self._parameters(), lease.grad_clip_norm)
        self.torch.step()

    def _parameters(self) -> list[torch.Tensor]:
        return list(self.torch.param_groups[0]["params"])


def _adamw(parameters: list[torch.nn.Parameter], values: dict[str, float]) -> torch.optim.AdamW:
    betas = (values["beta1"], values["beta2"])
    return torch.optim.AdamW(parameters, values["lr"], betas, values["eps"], values["weight_decay"])


def _finite(gradients: list[torch.Tensor]) -> bool:
    """One look at the device for all of them; the largest magnitude is not finite if any element is not."""
    largest = torch.stack([norm.float() for norm in torch._foreach_norm(gradients, float("inf"))])
    return bool(torch.isfinite(largest).all())
