"""A rollback and the optimizers of seeds that are no more."""

from __future__ import annotations

import torch

from esper.tolaria.bank import Bank
from tests.test_optimizers import Seedling, optimizers


class Culled(Seedling):
    """It is known still, and has nothing to train."""

    def trainable(self) -> list[tuple[str, torch.nn.Parameter]]:
        return []


def test_a_rollback_gives_a_seed_culled_since_no_optimizer() -> None:
    governed, seeds = optimizers(), {"s0": Seedling("s0"), "s1": Seedling("s1")}
    for seed in seeds.values():
        governed.create(seed)
    kept = governed.snapshot(Bank())
    governed.drop("s0")

    governed.restore(kept, {**seeds, "s0": Culled("s0")})

    assert [governed.has(name) for name in seeds] == [False, True]
