"""What a torch optimizer remembers of its parameters: kept, put back, cleared."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from esper.tolaria.bank import Bank, copy_all

State = dict[str, object]


@dataclass(frozen=True, slots=True)
class Moments:
    """State per parameter, in the order of the parameters given; the tensors are copies."""

    states: list[State]

    def tensors(self) -> list[torch.Tensor]:
        return [value for state in self.states for value in state.values() if isinstance(value, torch.Tensor)]


def keep(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor], bank: Bank) -> Moments:
    states = [dict(optimizer.state.get(parameter, {})) for parameter in parameters]
    live = [(state, name, value) for state in states for name, value in state.items() if _is_tensor(value)]
    for (state, name, _), kept in zip(live, bank.keep([value for _, _, value in live]), strict=True):
        state[name] = kept
    return Moments(states)


def put_back(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor], moments: Moments) -> None:
    """Make the optimizer remember what was kept for these parameters, in place where it can."""
    into: list[torch.Tensor] = []
    source: list[torch.Tensor] = []
    for parameter, kept in zip(parameters, moments.states, strict=True):
        present = optimizer.state.pop(parameter, {})
        for name, value in kept.items():
            if isinstance(value, torch.Tensor):
                present[name] = _same_shape(present.get(name), value)
                into.append(present[name])
                source.append(value)
            else:
                present[name] = value
        if kept:
            optimizer.state[parameter] = {name: present[name] for name in kept}
    copy_all(into, source)


def clear(optimizer: torch.optim.Optimizer) -> None:
    """Forget all moments, as if the optimizer had just been built."""
    if isinstance(optimizer, torch.optim.Adagrad):  # the one that makes its state when built, not at its first step
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                optimizer.state[parameter]["step"].zero_()
                optimizer.state[parameter]["sum"].fill_(group["initial_accumulator_value"])
    else:
        optimizer.state.clear()


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _same_shape(present: object, kept: torch.Tensor) -> torch.Tensor:
    if isinstance(present, torch.Tensor) and present.shape == kept.shape and present.dtype == kept.dtype:
        return present
    return torch.empty_like(kept)
