"""What of a fossil the host's optimizer can't step is frozen, until a rollback takes the fossil off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from esper.tolaria.state.bank import Bank
from tests.optimizer_kit import Host, give_gradients, grown, join, same


class MuonWithAdam(torch.optim.Optimizer):
    """As KellerJordan/Muon and karpathy/nanochat have one: by its group a parameter is orthogonalised, or is not."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    step = each.grad.sign() if group["kind"] == "adamw" else _orthogonal(each.grad)
                    each.add_(step, alpha=-group["lr"])


def _orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    whole: torch.Tensor = left @ right
    return whole


CHOOSY: dict[str, tuple[Callable[[Host], torch.optim.Optimizer], list[bool]]] = {
    "LBFGS has one group": (lambda host: torch.optim.LBFGS(host.parameters(), max_iter=1), [False, False, False]),
    "SparseAdam wants sparse gradients": (
        lambda host: torch.optim.SparseAdam(host.parameters()),
        [False, False, False],
    ),
    "Muon wants matrices": (lambda host: torch.optim.Muon([host.body.weight, host.head.weight]), [True, False, False]),
    "anybody's Muon too": (
        lambda host: MuonWithAdam([{"params": [host.body.weight, host.head.weight], "kind": "muon"}]),
        [True, False, False],
    ),
}


@pytest.mark.parametrize("why", CHOOSY)
def test_of_a_fossil_that_is_frozen_which_the_hosts_optimizer_can_not_step(why: str) -> None:
    host = Host()
    build, wanted = CHOOSY[why]
    optimizer = build(host)
    optimizers, seed = grown(host, optimizer)
    num_groups, as_left = len(optimizer.param_groups), [each.detach().clone() for each in seed.parameters]

    fossil = join(host, optimizers, seed)

    assert [each.requires_grad for each in fossil] == wanted
    assert len(optimizer.param_groups) == num_groups + any(wanted)
    assert same([each.detach() for each in fossil], as_left)
    if not isinstance(optimizer, torch.optim.SparseAdam):
        torch.autograd.backward(host.loss(1))
        optimizer.step(lambda: 1.0)


@pytest.mark.parametrize("is_counted", [False, True])
def test_a_fossil_is_trained_as_the_vectors_are_of_a_muon_that_has_some(is_counted: bool) -> None:
    host = Host()
    vectors = {"params": [host.body.bias, host.head.bias], "kind": "adamw"}
    optimizer = MuonWithAdam([vectors, {"params": [host.body.weight, host.head.weight], "kind": "muon"}])
    if is_counted:
        lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    optimizers, seed = grown(host, optimizer)

    fossil = join(host, optimizers, seed)
    as_left = [each.detach().clone() for each in fossil]
    give_gradients([*host.parameters()], "both", 1)
    optimizer.step()

    assert [group["kind"] for group in optimizer.param_groups] == ["adamw", "muon", *["adamw"] * (not is_counted)]
    signs = [
        before - 0.01 * each.grad.sign() for before, each in zip(as_left, fossil, strict=True) if each.grad is not None
    ]
    assert same([each.detach() for each in fossil], signs)


@pytest.mark.parametrize("why", CHOOSY)
def test_a_rollback_lets_what_was_frozen_learn_again(why: str) -> None:
    host = Host()
    optimizers, seed = grown(host, CHOOSY[why][0](host))
    kept = optimizers.snapshot(Bank())
    seed.parameters = join(host, optimizers, seed)
    del host.fossil

    optimizers.restore(kept, {"s0": seed})

    assert all(each.requires_grad for each in seed.parameters)
