"""Feeds the loss back into alpha: a seed whose blending makes the loss worse waits, then goes back."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from torch import Tensor

from esper.kasmina.blend import fed_back
from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.evidence import EvidenceCollector
from esper.kasmina.gates.ring import LossLevel
from esper.kasmina.seeds.seed import Seed
from esper.leyline.lifecycle import BLENDING


def feed_back(collector: EvidenceCollector, living: Sequence[Seed], step: int) -> None:
    """Every `read_every` steps, on all ranks alike: compare the newest losses with those from before each seed blended.

    Means over ranks, so that alpha moves alike everywhere. A loss that several blending seeds share moves all of them.
    Nothing moves where no loss was given to `step.loss`.
    """
    config = collector.config
    blending = [seed for seed in living if seed.stage == BLENDING and not seed.paused]
    if not (config.alpha_feedback and blending):
        return
    now = LossLevel.newest(collector.losses, min(config.read_every, config.window))
    values: list[float | Tensor | None] = []
    for seed in blending:
        levels = (seed.loss_before, now if collector.losses.total - seed.losses_seen >= config.read_every else None)
        values += [value for level in levels for value in ((level.mean, level.error) if level else (None, None))]
    means = collector.mean(values)
    for position, seed in enumerate(blending):
        _move(seed, means[4 * position : 4 * position + 4], step, config)


def _move(seed: Seed, means: Sequence[float | None], step: int, config: KasminaConfig) -> None:
    before, error_before, now, error_now = means
    if before is None or error_before is None or now is None or error_now is None:
        return
    margin = config.alpha_feedback_sigmas * sqrt(max(error_before + error_now, 0.0))
    worse = not now - before <= margin  # not a number is worse
    schedule = seed.schedule
    seed.schedule, seed.phase = fed_back(schedule, seed.phase, step, config.alpha_hysteresis, worse=worse)
    seed.num_holds += worse and schedule.held_since is None
    seed.num_retreats += worse and schedule.held_since is not None
