"""Lives by the hundred: `python -m tests.grove.run FIRST COUNT`. Status 1 where something is found, with its seeds."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.garden.wrong import Wrong
from tests.grove.life import Life
from tests.grove.plan import Plan


def main(first: int, num: int) -> int:
    found, began = defaultdict[str, list[int]](list), time.monotonic()
    for seed in range(first, first + num):
        with tempfile.TemporaryDirectory() as folder:
            try:
                Life(Plan.draw(seed), Path(folder)).live()
            except Wrong as error:
                what = re.sub(r"\d+", "N", str(error))[:300]
                if what not in found:
                    print(f"{seed}: {str(error)[:1500]}", flush=True)
                found[what].append(seed)
    for what, seeds in found.items():
        print(f"{len(seeds)} times: {what}: {seeds[:5]}")
    took = time.monotonic() - began
    print(f"{num} lives in {took:.0f} s, {sum(map(len, found.values()))} of them went wrong")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
