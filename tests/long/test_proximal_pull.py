"""A TRAINING seed needs its pull: without it the loop is open, and the same seed diverges."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.ledger import Ledger
from esper.kasmina.isolation.functions import measured, norm, shadow
from esper.kernels.blueprints import BLUEPRINTS
from tests.seed_kit import batch, new_host

LEDGER = Ledger(KasminaConfig(rho=0.1), torch.device("cpu"), 1)


def joined(h: Tensor, delta: Tensor, *, pull: bool) -> Tensor:
    return shadow(h, delta, LEDGER, measured(0, h, delta)) if pull else h + (delta - delta.detach())


def trained(*, pull: bool) -> tuple[float, float]:
    """(abs(delta) / abs(h), loss with the seed less loss without) on examples that nothing has seen."""
    host = new_host()
    torch.manual_seed(0)
    shapes = torch.Size((64, 8)), torch.Size((64, 6))
    seed = BLUEPRINTS["mlp"].build(host.body, *shapes, {})
    optimizers = [torch.optim.SGD(host.parameters(), lr=0.05), torch.optim.AdamW(seed.parameters(), lr=1e-2)]
    for step in range(200):
        x, targets = batch(step)
        h = host.body(x)
        value = joined(h, seed(x, h.detach()), pull=pull)
        torch.autograd.backward(nn.functional.cross_entropy(host.head(torch.relu(value)), targets))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    x, targets = batch(-1, 2_048)
    with torch.no_grad():
        h = host.body(x)
        delta = seed(x, h)
        on, off = (nn.functional.cross_entropy(host.head(torch.relu(value)), targets) for value in (h + delta, h))
    return float(norm(delta) / norm(h)), float(on - off)


@pytest.mark.parametrize("pull", [True, False])
def test_a_seed_stays_near_its_aim_and_helps_only_with_the_pull(pull: bool) -> None:
    size, change = trained(pull=pull)

    assert (size < 0.2) == pull
    assert (size > 5.0) != pull
    assert (change < 0.0) == pull
