"""Blending: alpha's way, and what flows back through a blended value."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from esper.kasmina.blend import AlphaSchedule, curve_at, seed_clip
from esper.leyline import contracts as pb
from tests.seed_kit import APPLIED, Bench, Op, batch, equal, loss_of, new_host

CURVES = [
    pb.AlphaCurve.ALPHA_CURVE_LINEAR,
    pb.AlphaCurve.ALPHA_CURVE_COSINE,
    pb.AlphaCurve.ALPHA_CURVE_SIGMOID,
    pb.AlphaCurve.ALPHA_CURVE_UNKNOWN,
]


@pytest.mark.parametrize("curve", CURVES)
def test_a_curve_runs_from_0_to_1_and_never_back(curve: pb.AlphaCurve) -> None:
    values = [curve_at(curve, i / 50) for i in range(51)]

    assert values[0] == 0.0
    assert values[-1] == 1.0
    assert values == sorted(values)


def test_a_schedule_reaches_its_target_exactly_and_stays() -> None:
    schedule = AlphaSchedule(0.2, 0.7, first_step=10, num_steps=4, curve=pb.AlphaCurve.ALPHA_CURVE_LINEAR)

    assert [schedule.at(step) for step in (9, 10, 14, 99)] == [0.2, 0.2, 0.7, 0.7]
    assert math.isclose(schedule.at(12), 0.45)


def test_a_schedule_of_no_steps_is_at_its_start_before_its_step_and_at_its_target_from_there_on() -> None:
    schedule = AlphaSchedule(0.2, 0.7, first_step=10, num_steps=0)

    assert [schedule.at(step) for step in (8, 9, 10, 11)] == [0.2, 0.2, 0.7, 0.7]


def test_the_clip_is_widest_in_the_middle() -> None:
    assert seed_clip(0.5) == 0.1
    assert math.isclose(seed_clip(1.0), 0.1 / 26)


def test_the_host_learns_through_a_blend_as_from_a_constant() -> None:
    bench = Bench()
    bench.raise_seed("BLENDING")
    seed = bench.executor.seeds["s0"]
    x, targets = batch(99)
    host = new_host()
    host.load_state_dict(bench.host.state_dict())
    assert seed.module is not None
    h = host.body(x)
    constant: Tensor = (seed.alpha * seed.module(x, h)).detach()
    torch.autograd.backward(loss_of(host.head(torch.relu(h + constant)), targets).mean())
    expected = {name: p.grad for name, p in host.named_parameters() if p.grad is not None}

    gradients = bench.gradients(99)

    assert equal(gradients, expected)
    assert constant.abs().max() > 0


def test_a_blended_seed_learns_its_own_gradient_with_the_host_held() -> None:
    bench = Bench()
    bench.raise_seed("BLENDING")
    seed = bench.executor.seeds["s0"]
    assert seed.module is not None
    x, targets = batch(99)
    h = bench.host.body.forward(x).detach()  # forward itself runs no hook
    own = [p for _, p in seed.trainable()]
    value = h + seed.alpha * seed.module(x, h)
    expected = torch.autograd.grad(loss_of(bench.host.head(torch.relu(value)), targets).mean(), own)

    seed.module.zero_grad()
    bench.gradients(99)

    for parameter, gradient in zip(own, expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("stage", ["TRAINING", "BLENDING"])
def test_a_seed_that_overflows_never_poisons_the_host(stage: str, poison: float) -> None:
    bench = Bench()
    bench.raise_seed(stage)
    alone = new_host()
    alone.load_state_dict(bench.host.state_dict())
    seed = bench.executor.seeds["s0"]
    with torch.no_grad():
        seed.trainable()[-1][1].fill_(poison)

    gradients = bench.gradients(99)

    assert equal(gradients, Bench(alone, sites=()).gradients(99))
    assert torch.equal(bench.host(batch(98)[0]), alone(batch(98)[0]))


def test_alpha_moves_to_a_new_target_from_where_it_stands() -> None:
    bench = Bench()
    bench.raise_seed("BLENDING")
    alpha = bench.executor.seeds["s0"].alpha

    assert bench.do(Op.SEED_OP_SET_ALPHA_TARGET, alpha=0.5, steps=4).status == APPLIED
    bench.train(1)
    first = float(alpha)
    bench.train(4)

    assert first == 1.0
    assert float(alpha) == 0.5
    assert bench.executor.seeds["s0"].alpha is alpha
