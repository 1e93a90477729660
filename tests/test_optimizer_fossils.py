"""A fossil's parameters join the host's optimizer with their moments, and its scheduler learns of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from esper.errors import RefusedError
from esper.tolaria.state.bank import Bank
from tests.optimizer_kit import APPLIED, Host, Kind, Sprout, command, give_gradients, governed, grown, join, same, start


@pytest.mark.parametrize("build", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}])
def test_a_fossil_steps_on_as_its_seed_would_have(build: Any, options: dict[str, bool]) -> None:
    host, twins = Host(), start("s0")
    optimizer = build(host.parameters(), lr=1e-3, weight_decay=0.01, **options)
    # The seed's five steps are AdamW's; what follows are the host's.
    first = torch.optim.AdamW(twins, lr=1e-3, weight_decay=0.01)
    for step in range(5):
        give_gradients(twins, "s0", step)
        first.step()
    second = build(twins, lr=1e-3, weight_decay=0.01, **options)
    second.load_state_dict(first.state_dict() | {"param_groups": second.state_dict()["param_groups"]})

    optimizers, seed = grown(host, optimizer)
    fossil = join(host, optimizers, seed)
    for step in range(5, 9):
        for parameters, stepping in ((fossil, optimizer), (twins, second)):
            give_gradients(parameters, "s0", step)
            stepping.step()

    assert same(fossil, twins)
    assert int(optimizer.state[fossil[0]]["step"]) == 9
    assert optimizers.owner_of(fossil[0]) == "host"
    assert not optimizers.has("s0")


def test_what_a_blueprint_has_frozen_stays_frozen_in_its_fossil() -> None:
    host = Host()
    optimizers, seed = grown(host, torch.optim.AdamW(host.parameters(), lr=1e-3))
    fixed = nn.Parameter(torch.ones(3), requires_grad=False)
    learning = seed.parameters
    host.fossil, seed.parameters = nn.ParameterList([*learning, fixed]), []

    joined = optimizers.fossilize("s0", [*learning, fixed])

    assert joined == learning  # each of these gets a hook on its gradient, which torch refuses for the other
    assert not fixed.requires_grad


def test_an_sgd_fossil_keeps_its_momentum() -> None:
    host = Host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9)
    optimizers, seed = grown(host, optimizer, momentum=0.9, lr=0.1)
    momenta = [optimizers._seeds["s0"].torch.state[p]["momentum_buffer"].clone() for p in seed.parameters]

    fossil = join(host, optimizers, seed)

    assert same([optimizer.state[parameter]["momentum_buffer"] for parameter in fossil], momenta)


JOINS: dict[str, dict[str, Any]] = {
    "without a history": {},
    "with a history": {"momentum": 0.9},
    "beside a host that forgot its own": {"momentum": 0.9, "forgets": True},
    "in a group of its own, with half a history": {"momentum": 0.9, "late": 2, "counted": False},
}


def joined(*, fused: bool, forgets: bool = False, late: int = 0, counted: bool = True, **given: float) -> list[Any]:
    """What a host and its fossil are after three steps of both; of the seed's parameters so many were idle before."""
    host, seed = Host(), Sprout()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9, nesterov=True, fused=fused)
    if counted:
        lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    optimizers = governed(host, optimizer)
    optimizers.create(seed, **given)
    for step in range(5):
        host.train_step(optimizer, step)
        give_gradients(seed.parameters[late:], "s0", step)
        optimizers.step(step)
    if forgets:
        optimizers.apply(command(Kind.OPTIMIZER_COMMAND_RESET_STATE, "host"), 5, {})
    join(host, optimizers, seed)
    for step in range(5, 8):
        give_gradients([*host.parameters()], "both", step)
        optimizer.step()
    return host.weights()


@pytest.mark.parametrize("how", JOINS)
def test_a_fossil_joins_a_fused_sgd_as_it_joins_a_plain_one(how: str) -> None:
    fused, plain = joined(fused=True, **JOINS[how]), joined(fused=False, **JOINS[how])

    torch.testing.assert_close(fused, plain)


@pytest.mark.parametrize("fused", [False, True])
def test_a_reset_reaches_an_adagrad_that_a_fossil_has_just_joined(fused: bool) -> None:
    host, twins = Host(), [*Host().parameters(), *start("s0")]
    optimizer = torch.optim.Adagrad(host.parameters(), lr=0.1, initial_accumulator_value=0.5, fused=fused)
    optimizers, seed = governed(host, optimizer), Sprout()
    host.train_step(optimizer, 0)
    join(host, optimizers, seed)
    for twin, parameter in zip(twins, host.parameters(), strict=True):
        twin.data.copy_(parameter.data)
    fresh = torch.optim.Adagrad(twins, lr=0.1, initial_accumulator_value=0.5, fused=fused)

    outcome = optimizers.apply(command(Kind.OPTIMIZER_COMMAND_RESET_STATE, "host"), 1, {})
    for parameters, stepping in ((list(host.parameters()), optimizer), (twins, fresh)):
        give_gradients(parameters, "both", 1)
        stepping.step()

    assert outcome.status == APPLIED
    assert same([*host.parameters()], twins)


def reset_beside_an_idle_fossil(*, fused: bool) -> list[Any]:
    """What a host and its fossil are after a reset, and a step in which the fossil alone has no gradient."""
    host, seed = Host(), Sprout()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9, fused=fused)
    lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)  # unknown here, so that the fossil joins the host's own group
    optimizers, own = governed(host, optimizer), [*host.parameters()]
    host.train_step(optimizer, 0)
    join(host, optimizers, seed)
    for step, learning in enumerate(([*host.parameters()], own, [*host.parameters()]), 1):
        give_gradients(learning, "both", step)
        optimizer.step()
        optimizer.zero_grad()
        if step == 1:
            optimizers.apply(command(Kind.OPTIMIZER_COMMAND_RESET_STATE, "host"), 1, {})
    return host.weights()


def test_a_fused_sgd_that_was_reset_steps_a_fossil_that_learns_later() -> None:
    torch.testing.assert_close(reset_beside_an_idle_fossil(fused=True), reset_beside_an_idle_fossil(fused=False))


def test_a_fossil_that_joins_a_fused_sgd_costs_what_the_host_froze_no_memory() -> None:
    host = Host()
    host.head.requires_grad_(False)
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9, fused=True)
    lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    host.train_step(optimizer, 0)
    optimizers, seed = grown(host, optimizer)

    fossil = join(host, optimizers, seed)
    give_gradients([*host.body.parameters(), *fossil], "both", 1)
    optimizer.step()

    assert {*optimizer.state} == {*host.body.parameters(), *fossil}


@pytest.mark.parametrize(
    "build",
    [
        lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
        lambda ps: torch.optim.AdamW(ps, lr=0.1, amsgrad=True),
        lambda ps: torch.optim.RMSprop(ps, lr=0.1),
    ],
)
def test_where_the_hosts_optimizer_remembers_other_things_a_fossil_begins_without_a_history(
    build: Callable[..., torch.optim.Optimizer],
) -> None:
    host = Host()
    optimizer = build(host.parameters())
    optimizers, seed = grown(host, optimizer)

    fossil = join(host, optimizers, seed)
    before = [parameter.detach().clone() for parameter in fossil]
    give_gradients(fossil, "s0", 9)
    optimizer.step()

    assert not same(before, fossil)


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]] = {
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.5, total_steps=12),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, factor=0.5, min_lr=[0.01]),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 12),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, base_lr=0.01, max_lr=0.5, step_size_up=3),
    "in turn": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=2), lr_scheduler.ExponentialLR(o, 0.8)], milestones=[2]
    ),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_scheduler_gives_the_fossil_the_rates_of_the_group_it_was_made_like(kind: str) -> None:
    host = Host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.4, momentum=0.9)
    scheduler = SCHEDULERS[kind](optimizer)
    optimizers, seed = grown(host, optimizer, scheduler)
    alone = torch.optim.SGD(Host().parameters(), lr=0.4, momentum=0.9)
    reference = SCHEDULERS[kind](alone)

    def advance(*each: tuple[torch.optim.Optimizer, lr_scheduler.LRScheduler]) -> None:
        for stepping, scheduled in each:
            stepping.step()
            scheduled.step(1.0) if kind == "plateau" else scheduled.step()  # type: ignore[arg-type]

    kept = optimizers.snapshot(Bank())
    for _ in range(3):
        advance((optimizer, scheduler), (alone, reference))
    fossil = join(host, optimizers, seed)
    for _ in range(3):
        advance((optimizer, scheduler), (alone, reference))
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates == [alone.param_groups[0]["lr"]] * 2

    del host.fossil
    optimizers.restore(kept, {})
    advance((optimizer, scheduler), (alone, reference))

    assert [group["lr"] for group in optimizer.param_groups] == [alone.param_groups[0]["lr"]]
    assert fossil[0] not in optimizer.state


@pytest.mark.parametrize("known", [True, False])
def test_a_host_given_named_parameters_names_its_fossils_too(known: bool) -> None:
    host = Host()
    optimizer = torch.optim.SGD(host.named_parameters(), lr=0.1, momentum=0.9)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    optimizers, seed = grown(host, optimizer, *([scheduler] if known else []))
    kept = optimizers.snapshot(Bank())

    join(host, optimizers, seed)
    names = [name for group in optimizer.param_groups for name in group["param_names"]]
    optimizer.step()
    scheduler.step()
    state = optimizer.state_dict()
    optimizers.restore(kept, {})

    assert names[-3:] == ["fossil.0", "fossil.1", "fossil.2"]
    assert [len(group["params"]) for group in state["param_groups"]] == ([4, 3] if known else [7])
    assert [group["param_names"] for group in optimizer.param_groups] == [names[:4]]


def test_a_group_that_the_user_left_empty_survives_a_rollback() -> None:
    host = Host()
    groups: list[dict[str, Any]] = [{"params": list(host.parameters())}, {"params": [], "lr": 0.7}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    optimizers = governed(host, optimizer)

    optimizers.restore(optimizers.snapshot(Bank()), {})

    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.7]


def test_a_parameter_from_outside_the_model_does_not_join_the_host() -> None:
    host = Host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
    optimizers = governed(host, optimizer)

    with pytest.raises(RefusedError, match="parameter 4 of optimizer 'host' is registered in no module"):
        optimizers.add_to_host(start("stranger", ((2,),)))

    assert len(optimizer.param_groups) == 1
