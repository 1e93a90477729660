"""Towns by the hundred: `python -m tests.town.run FIRST COUNT`. Status 1 where something is found, with its seeds."""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import product

from esper.errors import TrainingError
from tests.town.town import Town


def main(first: int, num: int) -> int:
    found = defaultdict[str, list[str]](list)
    for seed, group, loses in product(range(first, first + num), (True, False), (True, False)):
        try:
            Town(seed, group=group, loses=loses).live()
        except (AssertionError, TrainingError) as error:
            found[str(error)].append(f"Town({seed}, group={group}, loses={loses})")
    for what, towns in found.items():
        print(f"{len(towns)} times: {what}: {', '.join(towns[:3])}")
    print(f"{4 * num} towns, {sum(map(len, found.values()))} of them went wrong")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
