"""A loss that got worse holds alpha, then sends it back; one that recovers lets it go on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch

from esper.kasmina.blend import AlphaSchedule, Phase, fed_back, phase_of
from esper.leyline import contracts as pb
from tests.seed_kit import APPLIED, SETTINGS, Bench, Op

LINEAR = AlphaSchedule(0.0, 1.0, first_step=0, num_steps=100, curve=pb.AlphaCurve.ALPHA_CURVE_LINEAR)
BAND = 0.02


def phases(alphas: Iterable[float]) -> list[Phase]:
    phase, seen = Phase.LOW, []
    for alpha in alphas:
        phase = phase_of(alpha, phase, BAND)
        seen.append(phase)
    return seen


def test_an_alpha_that_hovers_at_a_boundary_crosses_it_once() -> None:
    low, middle, high = Phase.LOW, Phase.MIDDLE, Phase.HIGH

    assert phases([0.31, 0.32, 0.29, 0.31, 0.279, 0.31]) == [low, middle, middle, middle, low, low]
    assert phases([0.71, 0.721, 0.69, 0.679]) == [middle, high, high, middle]
    assert phases([1.0, 0.0]) == [high, low]


def test_a_first_bad_look_holds_and_a_good_one_goes_on_from_there() -> None:
    held, phase = fed_back(LINEAR, Phase.LOW, 50, BAND, worse=True)
    released, _ = fed_back(held, phase, 58, BAND, worse=False)

    assert [held.at(step) for step in (50, 58, 500)] == [0.5, 0.5, 0.5]
    assert [released.at(step) for step in (58, 68, 108)] == [0.5, 0.6, 1.0]


@pytest.mark.parametrize(("step", "lower"), [(90, 0.68), (50, 0.28), (20, 0.0)])
def test_a_second_bad_look_in_a_row_sends_alpha_to_the_end_of_the_phase_below(step: int, lower: float) -> None:
    held, phase = fed_back(LINEAR, phase_of(step / 100, Phase.LOW, BAND), step, BAND, worse=True)

    back, phase = fed_back(held, phase, step + 8, BAND, worse=True)
    onward, _ = fed_back(back, phase, step + 16, BAND, worse=False)

    assert back.at(step + 80) == pytest.approx(lower)
    assert onward.at(step + 16) == pytest.approx(lower)
    assert onward.at(step + 116) == 1.0


def test_a_blend_of_no_steps_is_sent_back_too_and_at_its_target_at_once_where_the_loss_is_good_again() -> None:
    at_once = AlphaSchedule(0.0, 1.0, first_step=10, num_steps=0)
    held, phase = fed_back(at_once, Phase.HIGH, 20, BAND, worse=True)

    back, phase = fed_back(held, phase, 28, BAND, worse=True)
    onward, _ = fed_back(back, phase, 36, BAND, worse=False)

    assert held.at(24) == onward.at(36) == 1.0
    assert back.at(30) == pytest.approx(0.68)


def blending(**changes: object) -> Bench:
    bench = Bench(settings=replace(SETTINGS, **changes), host_lr=0.0)  # type: ignore[arg-type]
    bench.raise_seed("TRAINING")
    assert bench.do(Op.SEED_OP_START_GRAFTING, steps=200).status == APPLIED
    return bench


def train_at_loss(bench: Bench, num_steps: int, loss: float) -> None:
    """Steps that report another loss than the one they had."""
    for _ in range(num_steps):
        bench.step += 1
        bench.executor.begin_step(bench.step, 0)
        bench.executor.note_loss(torch.tensor(loss))


def test_a_seed_waits_while_the_loss_is_worse_than_before_it_blended() -> None:
    bench = blending()
    alpha = bench.executor.seeds["s0"].alpha

    train_at_loss(bench, 12, 50.0)  # one look, then another
    held = float(alpha)
    train_at_loss(bench, 8, 50.0)
    lowered = float(alpha)
    train_at_loss(bench, 240, 0.0)

    assert 0.0 < held < 0.2
    assert lowered == 0.0
    assert float(alpha) == 1.0
    metrics = bench.executor.states()[0].metrics
    assert metrics["alpha_holds"] == 1
    assert metrics["alpha_retreats"] >= 1


def test_a_loss_that_is_not_a_number_is_worse() -> None:
    bench = blending()

    train_at_loss(bench, 30, float("nan"))

    assert bench.executor.states()[0].metrics["alpha_holds"] == 1


def test_without_feedback_alpha_follows_its_schedule_alone() -> None:
    bench = blending(alpha_feedback=False)

    train_at_loss(bench, 220, 50.0)

    assert float(bench.executor.seeds["s0"].alpha) == 1.0


def test_a_seed_that_made_the_loss_worse_at_its_target_is_not_stable() -> None:
    bench = Bench()
    bench.raise_seed("BLENDING")

    train_at_loss(bench, 16, 50.0)
    outcome = bench.do(Op.SEED_OP_STABILIZE)

    assert "alpha_held is 1, expected 0" in outcome.detail
