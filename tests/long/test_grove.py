"""Two ranks live by drawn orders, each in a process of its own, and stay one model whatever is ordered.

After each step their parameters, seeds, optimizers and receipts are the same bit for bit, and each gradient that was
stepped with is the mean of what both computed; until a seed has touched the output the host trains as two ranks do
without Esper; rollbacks and checkpoints bring back what was, on both; no rank waits for the other for ever.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.garden.wrong import Wrong
from tests.grove.gradients import Seen, compare
from tests.grove.life import Life
from tests.grove.plan import Plan

SEEDS = (25, 31, 42, 55, 160_000, 160_014)
"""Of those at which something was found once, each time something else; `python -m tests.grove.run 0 300` tries
others. In the last two fully_shard has split the host."""
ONE, OTHER = np.array([1.0, 2.0]), np.array([3.0, 2.0])
MEAN = (ONE + OTHER) / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_two_ranks_stay_one_model_whatever_is_ordered(seed: int, tmp_path: Path) -> None:
    Life(Plan.draw(seed), tmp_path).live()


def test_a_gradient_that_is_the_mean_of_both_is_right() -> None:
    compare([{"w": (ONE, MEAN)}, {"w": (OTHER, MEAN)}])
    compare([{"w": (ONE, ONE / 2)}, {"w": (None, ONE / 2)}])


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ({"w": (ONE, ONE)}, {"w": (OTHER, OTHER)}, "two gradients"),
        ({"w": (ONE, MEAN / 2)}, {"w": (OTHER, MEAN / 2)}, "off by"),
        ({"w": (ONE, None)}, {"w": (None, None)}, "was given no gradient"),
        ({"w": (ONE, MEAN)}, {"w": (OTHER, None)}, "on one rank alone"),
        ({"w": (ONE, MEAN)}, {}, "one rank steps"),
    ],
)
def test_any_other_gradient_is_wrong(one: Seen, other: Seen, why: str) -> None:
    with pytest.raises(Wrong, match=why):
        compare([one, other])
