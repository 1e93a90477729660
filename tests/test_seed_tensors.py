"""What a checkpoint holds of a seed's module is put into one that is built anew, each tensor as it was kept."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from esper.kasmina.seeds.seed_data import fill_tensors, tensors_of
from esper.kernels.residual import Scaled


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_fossil_has_its_weights_in_their_own_precision_beside_its_alpha(dtype: torch.dtype) -> None:
    """Its alpha, of float32, comes first of its tensors, or last."""
    kept = tensors_of(Scaled(nn.Linear(3, 2).to(dtype), torch.tensor(0.3)))
    backwards = dict(reversed(kept.items()))
    assert {each.dtype for each in kept.values()} == {dtype, torch.float32}

    for held in (kept, backwards):
        module = Scaled(nn.Linear(3, 2), torch.zeros(()))
        fill_tensors("s0", module, held)

        assert {name: each.dtype for name, each in tensors_of(module).items()} == {
            name: each.dtype for name, each in kept.items()
        }
        assert all(torch.equal(each, kept[name]) for name, each in tensors_of(module).items())
        assert all(each.requires_grad for each in module.parameters())
