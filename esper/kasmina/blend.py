"""How alpha moves from one value to another, step by step, and how it waits or goes back while the loss is worse."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum

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
    held_since: int | None = None  # this step; time stands still from there on

    @property
    def last_step(self) -> int:
        return self.first_step + self.num_steps

    def at(self, step: int) -> float:
        step = step if self.held_since is None else min(step, self.held_since)
        if step < self.first_step:
            return self.start
        if step >= self.last_step:
            return self.target
        share = curve_at(self.curve, (step - self.first_step) / self.num_steps)
        return self.start + (self.target - self.start) * share

    def held(self, step: int) -> AlphaSchedule:
        return self if self.held_since is not None else replace(self, held_since=step)

    def released(self, step: int) -> AlphaSchedule:
        """Goes on from where it was held."""
        if self.held_since is None:
            return self
        waited = max(step - max(self.held_since, self.first_step), 0)
        return replace(self, first_step=self.first_step + waited, held_since=None)

    def resumed(self, then: int, now: int) -> AlphaSchedule:
        """At step `now` where it was at step `then`: a rollback takes alpha back, and steps go on."""
        return self if self.held_since is not None else self.held(then).released(now)

    def retreated(self, alpha: float, step: int) -> AlphaSchedule:
        """Stands at `alpha`, held; once released it takes its whole time to the target again, be that none."""
        return replace(self, start=alpha, first_step=step + 1, held_since=step)


BOUNDARIES = (0.3, 0.7)


class Phase(IntEnum):
    """How far a seed is blended in."""

    LOW = 0
    MIDDLE = 1
    HIGH = 2


def phase_of(alpha: float, before: Phase, hysteresis: float) -> Phase:
    """A boundary counts as crossed only `hysteresis` beyond it, so that an alpha that hovers there changes nothing."""
    phase = before
    while phase < Phase.HIGH and alpha >= BOUNDARIES[phase] + hysteresis:
        phase = Phase(phase + 1)
    while phase > Phase.LOW and alpha <= BOUNDARIES[phase - 1] - hysteresis:
        phase = Phase(phase - 1)
    return phase


def fed_back(
    schedule: AlphaSchedule, phase: Phase, step: int, hysteresis: float, *, worse: bool
) -> tuple[AlphaSchedule, Phase]:
    """What a look at the loss makes of a schedule.

    The first look that finds it worse holds alpha where it is. The next one in a row sends it back to the end of the
    phase below, or to 0. Once the loss is as it was, the schedule goes on.
    """
    phase = phase_of(schedule.at(step), phase, hysteresis)
    if not worse:
        return schedule.released(step), phase
    if schedule.held_since is None:
        return schedule.held(step), phase
    lower = 0.0 if phase == Phase.LOW else BOUNDARIES[phase - 1] - hysteresis
    return schedule.retreated(lower, step), phase_of(lower, phase, hysteresis)


def seed_clip(alpha: float) -> float:
    """Gradient norm that a seed is clipped to, tightest far from alpha = 0.5, as the seed documents give it."""
    return 0.1 / (1.0 + 100.0 * (alpha - 0.5) ** 2)
