"""A rollback and the optimizers of seeds that are no more."""

from __future__ import annotations

import torch
from torch.optim import lr_scheduler

from esper.tolaria.optimizers import moments
from esper.tolaria.state.bank import Bank
from tests.optimizer_kit import Host, Seedling, Sprout, governed, optimizers


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


def test_a_rollback_leaves_the_groups_that_the_script_has_made_since() -> None:
    host = Host()
    optimizer = torch.optim.SGD(host.body.parameters(), lr=0.1, momentum=0.9)
    follows = lr_scheduler.StepLR(optimizer, 5)
    beside, seed = governed(host, optimizer, schedulers=(follows,)), Sprout()
    beside.create(seed)
    host.train_step(optimizer, 0)
    kept = beside.snapshot(Bank())
    momenta = [optimizer.state[each]["momentum_buffer"].clone() for each in host.body.parameters()]
    host.fossil, fossil, seed.parameters = torch.nn.ParameterList(seed.parameters), seed.parameters, []
    beside.fossilize("s0", fossil)
    optimizer.param_groups[0]["params"].pop()
    for parameter in (host.body.bias, host.head.weight):  # one that it had already, and one that is new to it
        optimizer.add_param_group({"params": [parameter], "lr": 0.01})
    follows.base_lrs += [0.01, 0.01]
    host.train_step(optimizer, 1)
    del host.fossil

    beside.restore(kept, {"s0": seed})

    placed = [[*map(id, group["params"])] for group in optimizer.param_groups]
    assert placed == [[id(each)] for each in (host.body.weight, host.body.bias, host.head.weight)]
    assert follows.base_lrs == [0.1, 0.01, 0.01]
    assert all(
        torch.equal(optimizer.state[each]["momentum_buffer"], was)
        for each, was in zip(host.body.parameters(), momenta, strict=True)
    )
    assert not optimizer.state.keys() & {*fossil}


def test_a_rollback_remembers_nothing_of_parameters_that_the_script_has_replaced() -> None:
    host = Host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9)
    beside = governed(host, optimizer)
    host.train_step(optimizer, 0)
    kept = beside.snapshot(Bank())
    optimizer.state.clear()
    host.load_state_dict({name: each.clone() for name, each in host.state_dict().items()}, assign=True)
    optimizer.param_groups[0]["params"][:] = [*host.requires_grad_().parameters()]

    beside.restore(kept, {})
    host.train_step(optimizer, 1)

    assert optimizer.state.keys() == {*host.parameters()}


def test_moments_are_put_back_in_the_precision_that_their_parameter_was_cast_to_since() -> None:
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    parameters = [*layer.parameters()]

    def descend() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(layer(torch.ones(4, 3, dtype=layer.weight.dtype)).square().sum())
        optimizer.step()

    descend()
    kept = moments.keep(optimizer, parameters, Bank())
    before = optimizer.state[layer.weight]["exp_avg"].clone()
    layer.double()
    optimizer.load_state_dict(optimizer.state_dict())  # as torch casts them
    descend()

    moments.put_back(optimizer, parameters, kept)

    assert torch.equal(optimizer.state[layer.weight]["exp_avg"], before.double())
    descend()
