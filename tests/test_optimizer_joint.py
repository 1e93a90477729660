"""What happens to many seeds that step together: clipping, skipping, forgetting, and going back."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.state.bank import Bank
from tests.optimizer_kit import APPLIED, Kind, Sprout, alone, command, give_gradients, same

WAYS: dict[str, dict[str, float]] = {
    "a": {},
    "b": {"lr": 0.02, "warmup_steps": 6},
    "c": {"momentum": 0.9, "lr": 0.1},
    "d": {"momentum": 0.9, "lr": 0.1, "warmup_steps": 3},
}


def many() -> tuple[Optimizers, dict[str, Sprout]]:
    optimizers, seeds = alone(), {name: Sprout(name) for name in WAYS}
    for name, seed in seeds.items():
        optimizers.create(seed, **WAYS[name])
    return optimizers, seeds


def train(optimizers: Optimizers, seeds: dict[str, Sprout], steps: range) -> None:
    for step in steps:
        for seed in seeds.values():
            seed.has_gradients(step)
        optimizers.step(step)


def weights(seeds: dict[str, Sprout]) -> list[torch.Tensor]:
    return [parameter.detach().clone() for seed in seeds.values() for parameter in seed.parameters]


@pytest.mark.parametrize(
    ("lease", "adaptive", "limit"), [(0.0, 0.5, 0.5), (0.3, 0.5, 0.3), (0.9, 0.5, 0.5), (2.0, 0, 2)]
)
def test_the_stricter_of_lease_and_adaptive_clip_bounds_the_norm(lease: float, adaptive: float, limit: float) -> None:
    seed = Sprout()
    optimizers = alone(clips=lambda: {"s0": adaptive})
    optimizers.create(seed, lr=1.0, momentum=0.0)
    optimizers.apply(command(Kind.OPTIMIZER_COMMAND_STEP, grad_clip_norm=lease), 0, {"s0": seed})
    before = [parameter.detach().numpy().astype(np.float64) for parameter in seed.parameters]
    seed.has_gradients(1)
    gradients = [p.grad.numpy().astype(np.float64) for p in seed.parameters if p.grad is not None]
    norm = math.sqrt(sum(float((each**2).sum()) for each in gradients))

    optimizers.step(1)

    assert norm > 3
    for old, gradient, parameter in zip(before, gradients, seed.parameters, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), old - gradient * limit / norm, rtol=1e-5, atol=1e-7)


def test_a_gradient_within_the_limit_is_left_as_it_is() -> None:
    clipped, free = Sprout(), Sprout()
    limited, plain = alone(clips=lambda: {"s0": 1e3}), alone()
    for optimizers, seed in ((limited, clipped), (plain, free)):
        optimizers.create(seed)
        train(optimizers, {"s0": seed}, range(3))

    assert same(clipped.parameters, free.parameters)


@dataclass
class Found:
    """A norm that is not theirs, so that it shows whether it was taken."""

    gradients: list[torch.Tensor]
    norm: float


@pytest.mark.parametrize(("own", "norm"), [(True, 100.0), (False, 2.0)])
def test_a_norm_that_was_found_is_taken_for_those_very_gradients_only(own: bool, norm: float) -> None:
    seed = Sprout("s0", ((4,),))
    optimizers = alone(clips=lambda: {"s0": 1.0})
    optimizers.create(seed, lr=1.0, momentum=0.0)
    before, gradient = seed.parameters[0].detach().clone(), torch.ones(4)  # norm 2
    seed.parameters[0].grad = gradient

    optimizers.step(1, {"s0": Found([gradient if own else gradient.clone()], 100.0)})

    torch.testing.assert_close(before - seed.parameters[0].detach(), torch.full((4,), 1.0 / norm))


def test_what_was_found_not_to_be_finite_steps_nothing() -> None:
    seed, optimizers = Sprout("s0", ((4,),)), alone()
    optimizers.create(seed)
    before, gradient = seed.parameters[0].detach().clone(), torch.ones(4)
    seed.parameters[0].grad = gradient

    faults = optimizers.step(1, {"s0": Found([gradient], math.inf)})

    assert [fault.seed_id for fault in faults] == ["s0"]
    assert torch.equal(seed.parameters[0].detach(), before)


def test_what_one_seed_lacks_or_spoils_changes_nothing_for_the_others() -> None:
    (disturbed, seeds), (quiet, twins) = many(), many()

    for step in range(6):
        for each in (*seeds.values(), *twins.values()):
            each.has_gradients(step)
        if step == 2:
            assert seeds["a"].parameters[1].grad is not None
            seeds["a"].parameters[1].grad[0] = math.nan
        if step == 3:
            seeds["c"].parameters[0].grad = None  # the forward went past that layer
        disturbed.step(step)
        quiet.step(step)

    assert {name: disturbed.left_out(name) for name in "abcd"} == {
        "a": {"steps_non_finite": 1},
        "b": {},
        "c": {},
        "d": {},
    }
    assert same([*seeds["b"].parameters, *seeds["d"].parameters], [*twins["b"].parameters, *twins["d"].parameters])
    assert not same(seeds["a"].parameters, twins["a"].parameters)


def test_a_parameter_of_a_fused_sgd_whose_first_gradient_comes_late_begins_then() -> None:
    optimizers, seed, twins = alone(), Sprout(), Sprout().parameters
    optimizers.create(seed, lr=0.1, momentum=0.9, dampening=0.5, fused=1.0)
    each_alone = [torch.optim.SGD([twin], lr=0.1, momentum=0.9, dampening=0.5, fused=True) for twin in twins]

    faults = []
    for step in range(4):
        seed.has_gradients(step)
        give_gradients(twins, "s0", step)
        if step < 2:
            seed.parameters[1].grad = twins[1].grad = None
        faults += optimizers.step(step)
        for twin in each_alone:
            twin.step()

    assert faults == []
    assert same(seed.parameters, twins)


def test_a_float16_gradient_beyond_its_own_squares_is_still_finite() -> None:
    seed, optimizers = Sprout("s0", ((64,),), torch.float16), alone()
    optimizers.create(seed, momentum=0.0, lr=1e-6)
    seed.parameters[0].grad = torch.full((64,), 6e4, dtype=torch.float16)

    optimizers.step(0)

    assert optimizers.left_out("s0") == {}


def test_the_state_of_a_culled_seed_is_gone_from_memory() -> None:
    optimizers, seeds = many()
    train(optimizers, seeds, range(2))
    held = [weakref.ref(value) for kept in optimizers._seeds["a"].torch.state.values() for value in kept.values()]
    assert len(held) == 9 and all(each() is not None for each in held)

    optimizers.drop("a")
    parameters = [weakref.ref(parameter) for parameter in seeds.pop("a").parameters]
    train(optimizers, seeds, range(2, 3))
    gc.collect()

    assert [each() for each in (*held, *parameters)] == [None] * 12
    assert optimizers.owns("a") == ()


def test_seeds_of_all_kinds_go_on_bit_identical_from_a_snapshot() -> None:
    optimizers, seeds = many()
    train(optimizers, seeds, range(4))  # b is still warming up
    before, kept = weights(seeds), optimizers.snapshot(Bank())
    train(optimizers, seeds, range(4, 9))
    expected = weights(seeds)

    optimizers.create(seeds["c"])  # another kind by now
    optimizers.drop("a")
    train(optimizers, {name: seed for name, seed in seeds.items() if name != "a"}, range(9, 12))
    with torch.no_grad():
        for parameter, value in zip((p for seed in seeds.values() for p in seed.parameters), before, strict=True):
            parameter.copy_(value)
    optimizers.restore(kept, seeds)
    train(optimizers, seeds, range(4, 9))

    assert same(weights(seeds), expected)


def test_a_reset_warms_up_anew_and_steps_as_if_just_created() -> None:
    optimizers, seeds = many()
    train(optimizers, seeds, range(5))

    outcome = optimizers.apply(command(Kind.OPTIMIZER_COMMAND_RESET_STATE, "b"), 5, seeds)
    fresh, twin = alone(), Sprout("b")
    for parameter, value in zip(twin.parameters, seeds["b"].parameters, strict=True):
        parameter.data.copy_(value.data)
    fresh.create(twin, **WAYS["b"])
    train(optimizers, seeds, range(5, 8))
    train(fresh, {"b": twin}, range(5, 8))

    assert outcome.status == APPLIED
    assert same(seeds["b"].parameters, twin.parameters)


def test_8_bit_state_takes_a_third_of_the_memory_and_goes_back_bit_identical() -> None:
    torchao = pytest.importorskip("torchao.optim")
    optimizers, seed, twin = alone(), Sprout("s0", ((64, 128), (8,))), Sprout("s0", ((64, 128), (8,)))
    optimizers.create(seed, lr=0.01, state_bits=8)
    reference = torchao.AdamW8bit(twin.parameters, lr=0.01, weight_decay=0.01)

    train(optimizers, {"s0": seed}, range(3))
    kept, before = optimizers.snapshot(Bank()), weights({"s0": seed})
    train(optimizers, {"s0": seed}, range(3, 6))
    after = weights({"s0": seed})
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        for step in range(6):
            twin.has_gradients(step)
            reference.step()
        for parameter, value in zip(seed.parameters, before, strict=True):
            parameter.copy_(value)
    optimizers.restore(kept, {"s0": seed})
    train(optimizers, {"s0": seed}, range(3, 6))

    assert same(after, twin.parameters)
    assert same(weights({"s0": seed}), after)
    assert sum(each.nbytes for each in kept.tensors()) < 2 * 4 * 64 * 128 / 3
