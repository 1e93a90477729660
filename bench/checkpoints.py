"""Kills writers of checkpoints and rollbacks, flips bits, forges files; a row fails where a trial met what must not be.

`esper bench run --from bench/checkpoints.py checkpoints --seed N` does the same once more.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the trials live beside the suite that runs a few
sys.path.insert(0, str(Path(__file__).resolve().parent))

from esper.bench.effort import Effort, Mode
from esper.bench.figures import Figure
from esper.bench.row import Measurement
from tests.checkpoint_trials import flips, forgeries, kills, rollbacks

FAMILY = "checkpoints"
TRIALS: Mapping[str, Callable[[int, int], Counter[str]]] = {
    "kills": kills,
    "flips": flips,
    "forgeries": forgeries,
    "rollbacks": rollbacks,
}
NUM: Mapping[str, Mapping[Mode, int]] = {
    "kills": {"quick": 20, "gate": 50, "full": 500},
    "flips": {"quick": 200, "gate": 1_000, "full": 10_000},
    "forgeries": {"quick": 40, "gate": 100, "full": 200},
    "rollbacks": {"quick": 6, "gate": 50, "full": 200},
}


def measure(name: str, effort: Effort) -> Iterator[Figure]:
    """What was met, and how often. BrokenError where it must not be."""
    num = NUM[name][effort.mode]
    for met, count in TRIALS[name](num, effort.seed).items():
        yield Figure(f"{FAMILY}-{name}", met, "count", count, "trials", num)


ROWS = tuple(
    Measurement(f"{FAMILY}-{name}", FAMILY, partial(measure, name), times=NUM[name]["full"] / NUM[name]["quick"])
    for name in TRIALS
)

if __name__ == "__main__":
    from script import main

    main([FAMILY], __file__)
