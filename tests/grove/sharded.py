"""Hosts that fully_shard splits over the ranks, and what of a life can be the same on all of them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from esper.kernels.split import is_split, own_part
from tests.garden import marks
from tests.garden.marks import Marks


@dataclass(frozen=True)
class Shards:
    """How a host is split."""

    by_site: bool  # each by itself, and what is left; else all of it as one
    reshards: bool | None  # behind a forward; None: as torch has it, all but the outermost

    @classmethod
    def draw(cls, dice: Random) -> Shards:
        return cls(dice.random() < 0.6, dice.choice([None, None, True, False]))

    def split(self, host: nn.Module, sites: tuple[str, ...]) -> nn.Module:
        """It, split."""
        tied = len([*host.parameters()]) < len([*host.named_parameters(remove_duplicate=False)])
        for site in sorted(sites, reverse=True) if self.by_site and not tied else ():  # what lies inside goes first
            if any(True for _ in host.get_submodule(site).parameters()):
                fully_shard(host.get_submodule(site), reshard_after_forward=self.reshards)
        fully_shard(host, reshard_after_forward=self.reshards)
        return host


def take_over(source: Any, into: Any) -> None:
    """Have one script stand where another one of the same plan does, whose host has no fossils."""
    pairs = [*zip(source.host.parameters(), into.host.parameters(), strict=True)]
    twin_of = {id(mine): its for mine, its in pairs}
    with torch.no_grad():
        for mine, its in [*pairs, *zip(source.host.buffers(), into.host.buffers(), strict=True)]:
            own_part(its).copy_(own_part(mine))
    for mine, its in pairs:
        its.grad = None if mine.grad is None else mine.grad.clone()
    into.optimizer.param_groups[:] = [
        {**group, "params": [twin_of[id(each)] for each in group["params"]]} for group in source.optimizer.param_groups
    ]
    for mine, state in source.optimizer.state.items():
        into.optimizer.state[twin_of[id(mine)]] = {
            name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()
        }


def of_all_ranks(script: Any, found: Marks) -> Marks:
    """Without what each rank holds a part of."""
    parts = {name for name, each in script.host.named_parameters() if is_split(each)}
    places = {at for at, each in enumerate(marks.placed(script.optimizer)) if is_split(each)}
    return {
        name: value
        for name, value in found.items()
        if name not in parts and not (name.startswith("optimizer ") and name.split()[1] in map(str, places))
    }
