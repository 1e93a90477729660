"""Runs by the hundred: `python -m tests.replayed.run FIRST COUNT`. Status 1 if something is found, with its seeds."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from pathlib import Path

from structlog.testing import capture_logs

from tests.replayed.again import replayed
from tests.replayed.life import Life
from tests.replayed.plan import Plan


def main(first: int, num: int) -> int:
    found, refused, orders = defaultdict[str, list[int]](list), Counter[str](), 0
    began = time.process_time()
    for seed in range(first, first + num):
        life = None
        with tempfile.TemporaryDirectory() as folder, capture_logs():
            try:
                life = Life(Plan.draw(seed), Path(folder))
                life.live()
                outcome = replayed(life)
                refused[outcome.refused[:60]] += 1
                orders += outcome.num_orders
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
                where = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__} {str(error)[:400]} ({where.filename.split('/')[-1]}:{where.lineno})"
                print(f"{seed}: {what}\n   {[] if life is None else life.told}", flush=True)
                found[what[:60]].append(seed)
    for what, seeds in found.items():
        print(f"{len(seeds)} times: {what}: {seeds[:8]}")
    print(f"refused: {dict(refused)}; {orders} orders carried out again")
    print(f"{num} runs in {time.process_time() - began:.1f} s of processor time, {sum(map(len, found.values()))} wrong")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
