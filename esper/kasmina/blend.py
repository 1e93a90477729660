"""How alpha moves from one value to another, step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from esper.leyline import contracts as pb

SIGMOID_STEEPNESS = 10.0


def curve_at(curve: pb.AlphaCurve, t: float) -> float:
    """Share of the way done at t of the time; exactly 0 at 0 and 1 at 1. Unknown means cosine."""
    t = min(max(t, 0.0), 1.0)
    match curve:
        case pb.AlphaCurve.ALPHA_CURVE_LINEAR:
            return t
        case pb.AlphaCurve.ALPHA_CURVE_SIGMOID:
            return _normalised_sigmoid(t)
        case _:
            return (1.0 - math.cos(math.pi * t)) / 2.0


def _normalised_sigmoid(t: float) -> float:
    def raw(at: float) -> float:
        return 1.0 / (1.0 + math.exp(-SIGMOID_STEEPNESS * (at - 0.5)))

    # A bare sigmoid starts at 0.0067 and never reaches 1.
    return (raw(t) - raw(0.0)) / (raw(1.0) - raw(0.0))


@dataclass(frozen=True, slots=True)
class AlphaSchedule:
    """Alpha as a function of the step."""

    start: float = 0.0
    target: float = 0.0
    first_step: int = 0
    num_steps: int = 0
    curve: pb.AlphaCurve = pb.AlphaCurve.ALPHA_CURVE_COSINE

    def at(self, step: int) -> float:
        if step >= self.first_step + self.num_steps:
            return self.target
        share = curve_at(self.curve, (step - self.first_step) / self.num_steps)
        return self.start + (self.target - self.start) * share


def seed_clip(alpha: float) -> float:
    """Gradient norm that a seed is clipped to, tightest far from alpha = 0.5, as the seed documents give it."""
    return 0.1 / (1.0 + 100.0 * (alpha - 0.5) ** 2)
