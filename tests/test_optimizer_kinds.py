"""A seed steps exactly as torch's own optimizer would, whichever it was given and however many step with it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.optimizer_kit import APPLIED, Reason, Sprout, adjustment, alone, create, give_gradients, refusal, same, start

ADAMW = {"lr": 0.05, "weight_decay": 0.3, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6}
FUSED = {**ADAMW, "fused": 1.0}
NESTEROV = {"lr": 0.02, "momentum": 0.9, "nesterov": 1.0, "weight_decay": 0.1}
DAMPENED = {"lr": 0.02, "momentum": 0.5, "dampening": 0.25}


def torch_adamw(parameters: Sequence[torch.nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.3, betas=(0.8, 0.99), eps=1e-6, **options)


def torch_nesterov(parameters: Sequence[torch.nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.1, **options)


def torch_fused(parameters: Sequence[torch.nn.Parameter], **_: Any) -> torch.optim.Optimizer:
    return torch_adamw(parameters, fused=True)


def torch_sgd(parameters: Sequence[torch.nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.5, dampening=0.25, **options)


def torch_fused_sgd(parameters: Sequence[torch.nn.Parameter], **_: Any) -> torch.optim.Optimizer:
    return torch_sgd(parameters, fused=True)


# With bfloat16 torch's own two ways of stepping on a CPU, one tensor at a time or all, differ in the last bit.
@pytest.mark.parametrize(
    ("dtype", "foreach"), [(torch.float32, None), (torch.float32, True), (torch.float64, None), (torch.bfloat16, True)]
)
@pytest.mark.parametrize(
    ("given", "reference"),
    [
        (ADAMW, torch_adamw),
        (FUSED, torch_fused),
        (NESTEROV, torch_nesterov),
        (DAMPENED, torch_sgd),
        ({**DAMPENED, "fused": 1.0}, torch_fused_sgd),
    ],
)
def test_a_seed_among_others_equals_torchs_optimizer_bit_for_bit(
    given: dict[str, float], reference: Callable[..., torch.optim.Optimizer], dtype: torch.dtype, foreach: bool | None
) -> None:
    seed, twins = Sprout("s0", dtype=dtype), start("s0", dtype=dtype)
    others = [Sprout("s1"), Sprout("s2", ((7, 2),)), Sprout("s3")]
    optimizers, twin_optimizer = alone(), reference(twins, foreach=foreach)
    optimizers.create(others[0], **given)  # in one batch with it
    optimizers.create(others[1], momentum=0.1)
    optimizers.create(seed, **given)

    for step in range(6):
        if step == 3:
            optimizers.create(others[2], **given)  # younger than the rest of its batch
        for each in [seed, *others]:
            each.has_gradients(step)
        give_gradients(twins, "s0", step)
        optimizers.step(step)
        twin_optimizer.step()

    assert same(seed.parameters, twins)


def test_a_seed_follows_adamw_as_published_in_float64() -> None:
    """Loshchilov and Hutter 2019, algorithm 2, with numpy."""
    seed = Sprout("s0", ((5,),), torch.float64)
    w, m, v = seed.parameters[0].detach().numpy().copy(), np.zeros(5), np.zeros(5)
    optimizers = alone()
    optimizers.create(seed, **ADAMW)

    for t in range(1, 8):
        seed.has_gradients(t)
        g = seed.parameters[0].grad
        assert g is not None
        m, v = 0.8 * m + 0.2 * g.numpy(), 0.99 * v + 0.01 * g.numpy() ** 2
        step = m / (1 - 0.8**t) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6)
        w = w - 0.05 * (step + 0.3 * w)
        optimizers.step(t)

    np.testing.assert_allclose(seed.parameters[0].detach().numpy(), w, rtol=1e-12)


def test_a_warm_up_raises_the_rate_linearly_over_the_steps_taken() -> None:
    seed, optimizers = Sprout("s0", ((3,),)), alone()
    optimizers.create(seed, lr=0.8, momentum=0.0, warmup_steps=4)
    rates, moved = [], []

    for step in range(6):
        rates.append(optimizers.learning_rate("s0"))
        before = seed.parameters[0].detach().clone()
        seed.parameters[0].grad = torch.ones(3) if step != 2 else torch.full((3,), math.nan)  # that one is not taken
        optimizers.step(step)
        moved.append(float((before - seed.parameters[0].detach())[0]))

    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.6, 0.8, 0.8])
    assert moved == pytest.approx([0.2, 0.4, 0.0, 0.6, 0.8, 0.8], rel=1e-5)


def test_a_command_wins_over_the_warm_up_until_it_is_released() -> None:
    seed, optimizers = Sprout(), alone()
    optimizers.create(seed, lr=1.0, warmup_steps=10)

    optimizers.adjust(adjustment("s0", lr=0.5))
    commanded = optimizers.learning_rate("s0")
    optimizers.adjust(adjustment("s0", release=("lr",)))

    assert (commanded, optimizers.learning_rate("s0")) == (0.5, 0.1)
    assert optimizers.hyperparameters("s0")["lr"] == 0.1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lr": -1.0}, "lr of optimizer 's0' is -1; expected a number of at least 0"),
        ({"beta2": 1.0}, "beta2 of optimizer 's0' is 1; expected a number in [0, 1)"),
        ({"momentum": 1.5}, "momentum of optimizer 's0' is 1.5; expected a number in [0, 1]"),
        ({"warmup_steps": 2.5}, "warmup_steps of optimizer 's0' is 2.5; expected a whole number in [0, 1e+09]"),
        ({"weight_decay": math.inf}, "weight_decay of optimizer 's0' is inf; expected a number of at least 0"),
        ({"nesterov": 1.0}, "nesterov needs a momentum above 0"),
        ({"state_bits": 4}, "state_bits of optimizer 's0' is 4; expected 8 or 32"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_was_expected(given: dict[str, float], said: str) -> None:
    seed, optimizers = Sprout(), alone()

    reason, detail = refusal(optimizers.apply(create(**given), 0, {"s0": seed}))

    assert reason == Reason.REASON_OUT_OF_RANGE
    assert said in detail
    assert not optimizers.has("s0")


def test_names_of_two_kinds_do_not_mix() -> None:
    reason, detail = refusal(alone().apply(create(momentum=0.9, beta1=0.8), 0, {"s0": Sprout()}))

    assert reason == Reason.REASON_UNKNOWN_PARAMETER
    assert "'beta1'" in detail
    assert "known: dampening, fused, lr, momentum, nesterov, warmup_steps, weight_decay" in detail


@pytest.mark.parametrize("name", ["host", "s0"])
def test_an_adjustment_out_of_range_is_refused_before_it_reaches_a_step(name: str) -> None:
    seed, optimizers = Sprout(), alone()
    optimizers.create(seed)
    before = optimizers.hyperparameters(name)

    reason, detail = refusal(optimizers.adjust(adjustment(name, lr=-0.5)))

    assert reason == Reason.REASON_OUT_OF_RANGE
    assert "-0.5" in detail
    assert optimizers.hyperparameters(name) == before


def test_a_created_kind_shows_what_may_be_steered() -> None:
    seed, optimizers = Sprout(), alone()

    outcome = optimizers.apply(create(lr=0.3, momentum=0.9), 0, {"s0": seed})

    assert outcome.status == APPLIED
    assert optimizers.hyperparameters("s0") == {"lr": 0.3, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0}


def test_8_bit_state_without_torchao_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.optim", None)  # as on a machine that lacks it
    optimizers = alone()

    reason, detail = refusal(optimizers.apply(create(state_bits=8), 0, {"s0": Sprout()}))

    assert reason == Reason.REASON_NOT_SUPPORTED
    assert "install esper[torchao]" in detail
    assert optimizers.owns("s0") == ()


def test_in_float16_the_least_gradient_makes_a_bounded_step() -> None:
    seed, optimizers = Sprout("s0", dtype=torch.float16), alone()
    optimizers.create(seed, lr=0.01)
    before = [each.detach().clone() for each in seed.parameters]

    for step in range(3):
        for each in seed.parameters:
            each.grad = torch.full_like(each, 5e-3 if step else 0.0)  # its square, times 1 - beta2, is 0 in float16
        optimizers.step(step)

    moved = [(each.detach() - start).abs().max().item() for each, start in zip(seed.parameters, before, strict=True)]
    assert all(0.0 < each < 0.3 for each in moved)


def test_in_float16_an_eps_that_is_rounded_to_0_is_refused() -> None:
    seed = Sprout("s0", dtype=torch.float16)

    reason, detail = refusal(alone().apply(create(eps=1e-8), 0, {"s0": seed}))

    assert reason == Reason.REASON_OUT_OF_RANGE
    assert detail == "eps of optimizer 's0' is 1e-08, which float16 rounds to 0; expected at least 6e-08"


def test_in_float16_no_command_sets_such_an_eps_later_either() -> None:
    seed, optimizers = Sprout("s0", dtype=torch.float16), alone()
    optimizers.create(seed)

    reason, detail = refusal(optimizers.adjust(adjustment("s0", eps=1e-8)))

    assert reason == Reason.REASON_OUT_OF_RANGE
    assert detail == "eps of optimizer 's0' is 1e-08, which float16 rounds to 0; expected at least 6e-08"
    assert optimizers.hyperparameters("s0")["eps"] == 1e-3
