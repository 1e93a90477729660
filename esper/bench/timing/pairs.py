"""Takes the samples: warm-up until the slope is flat, then rounds of one sample of each arm, in an order drawn anew."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from esper.bench.effort import Effort
from esper.bench.statistics.samples import is_flat, width

Name = TypeVar("Name")
Timed: TypeAlias = Callable[[], float]
"""Takes one sample, and says how many seconds of it count."""

WARM_UP = 5
"""Samples of each arm at least, none of which is kept."""
WINDOW = 10
"""The last of them, whose slope has to be flat."""
WARM_UP_MAX = 60
WARM_UP_SHARE = 0.25
"""Of the seconds of an effort: a warm-up that is not flat by then is ended, and told of."""
GROWTH = 1.25
"""Between two looks at the interval: fewer looks cost less time, and stop less often on a lucky one."""


@dataclass(slots=True)
class Taken:
    """Seconds of every sample, by arm, in the order in which they were taken: the i-th of each is of the same round."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    num_warm: int = 0
    is_warm: bool = True
    """False: calls were still changing with their number when the warm-up was ended."""


@dataclass(frozen=True, slots=True)
class Watch:
    """When there are rounds enough: `arms` whose ratios to the reference are to be narrow, and rounds to take for that.

    `enough`: rounds that a tail's percentile needs; they are taken as long as the effort's seconds last.
    """

    reference: str
    arms: Sequence[str]
    enough: int = 0


def take(arms: Mapping[str, Timed], watch: Watch, effort: Effort) -> Taken:
    """Rounds until the ratios of the watched arms to the reference are known as closely as the effort asks.

    What is looked at is how wide the intervals are, never where they lie, so that stopping favours no verdict. It might
    favour intervals that are too narrow: of 400 made-up runs of equal arms with the quick effort, whose logarithms
    spread by 0.05, 0.1 and 0.2, the 95 % intervals covered 1 in 0.953, 0.953 and 0.955.
    """
    draw = random.Random(effort.seed)
    taken = warm_up(arms, effort, draw)
    ends, look = time.monotonic() + effort.seconds, float(max(effort.min_pairs, watch.enough))
    while True:
        play(arms, draw, taken.samples)
        num, over = len(taken.samples[watch.reference]), time.monotonic() >= ends
        if num >= effort.max_pairs or (over and num >= effort.min_pairs):
            return taken
        if num >= look:
            look = num * GROWTH
            if narrow(taken.samples, watch, effort.width):
                return taken


def warm_up(arms: Mapping[str, Timed], effort: Effort, draw: random.Random) -> Taken:
    """Rounds that are no samples, until each arm's last calls show no slope, or the warm-up's time is over."""
    seen: dict[str, list[float]] = {name: [] for name in arms}
    ends = time.monotonic() + effort.seconds * WARM_UP_SHARE
    for num in range(1, WARM_UP_MAX + 1):
        play(arms, draw, seen)
        if num >= WARM_UP and all(is_flat(values[-WINDOW:]) for values in seen.values()):
            return Taken({name: [] for name in arms}, num)
        if num >= WARM_UP and time.monotonic() >= ends:
            break
    return Taken({name: [] for name in arms}, num, is_warm=False)


def in_turns(arms: Mapping[Name, Timed], num: int, draw: random.Random, *, warm: int) -> dict[Name, list[float]]:
    """So many rounds, behind `warm` others that are left out: a slow stretch of the machine meets all arms."""
    samples: dict[Name, list[float]] = {name: [] for name in arms}
    for _ in range(warm + num):
        play(arms, draw, samples)
    return {name: values[warm:] for name, values in samples.items()}


def play(arms: Mapping[Name, Timed], draw: random.Random, samples: Mapping[Name, list[float]]) -> None:
    """One round: each arm once, in an order that is drawn."""
    for name in draw.sample(list(arms), len(arms)):
        samples[name].append(arms[name]())


def narrow(samples: Mapping[str, Sequence[float]], watch: Watch, limit: float) -> bool:
    return all(width(samples[name], samples[watch.reference]) <= limit for name in watch.arms)
