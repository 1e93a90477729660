"""Lives by the hundred: `python -m tests.garden.run FIRST COUNT`. Status 1 where something is found, with its seeds."""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections import defaultdict
from itertools import zip_longest
from pathlib import Path
from random import Random

from structlog.testing import capture_logs

from tests.garden import further
from tests.garden.life import Life
from tests.garden.plan import Plan


def live(seed: int, folder: Path) -> None:
    """The life of this seed; some have another model attached beside them in the process."""
    if seed < further.FIRST_SEED or Random(f"beside {seed}").random() > 0.15:
        return Life(Plan.draw(seed), folder).live()
    seeds = seed, seed + 1_000_000
    both = [Life(Plan.draw(each), folder / str(each), alone=False).turns() for each in seeds]
    for _ in zip_longest(*both):
        pass


def main(first: int, num: int) -> int:
    found = defaultdict[str, list[int]](list)
    for seed in range(first, first + num):
        with tempfile.TemporaryDirectory() as folder, capture_logs():
            try:
                live(seed, Path(folder))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
                where = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__} {str(error)[:300]} ({where.filename.split('/')[-1]}:{where.lineno})"
                if what not in found:
                    print(f"{seed}: {what}", flush=True)
                found[what].append(seed)
    for what, seeds in found.items():
        print(f"{len(seeds)} times: {what}: {seeds[:5]}")
    print(f"{num} lives, {sum(map(len, found.values()))} of them went wrong")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
