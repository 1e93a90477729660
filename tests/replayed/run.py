"""Runs by the hundred: `python -m tests.replayed.run FIRST COUNT [two]`. Status 1 if something is found."""

from __future__ import annotations

import resource
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from pathlib import Path

from structlog.testing import capture_logs

from tests.replayed import pair_again
from tests.replayed.again import Outcome, replayed
from tests.replayed.life import Life
from tests.replayed.pair import PairLife
from tests.replayed.pair_plan import PairPlan
from tests.replayed.plan import Plan


def lived(life: Life | PairLife) -> Outcome:
    """Through its lives, and once more from its log."""
    life.live()
    return pair_again.replayed(life) if isinstance(life, PairLife) else replayed(life)


def main(first: int, num: int, *of: str) -> int:
    """`of`: "two" ranks; without it they are runs of one."""
    found, refused, orders = defaultdict[str, list[int]](list), Counter[str](), 0
    for seed in range(first, first + num):
        life: Life | PairLife | None = None
        with tempfile.TemporaryDirectory() as folder, capture_logs():
            try:
                at = Path(folder)
                life = PairLife(PairPlan.draw(seed), at) if of else Life(Plan.draw(seed), at)
                outcome = lived(life)
                refused[outcome.refused[:60]] += 1
                orders += outcome.num_orders
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
                where = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__} {str(error)[:600]} ({where.filename.split('/')[-1]}:{where.lineno})"
                print(f"{seed}: {what}\n   {[] if life is None else life.told}", flush=True)
                found[what[:60]].append(seed)
    for what, seeds in found.items():
        print(f"{len(seeds)} times: {what}: {seeds[:8]}")
    print(f"refused: {dict(refused)}; {orders} orders carried out again")
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    took = sum(each.ru_utime + each.ru_stime for each in used)
    print(f"{num} runs in {took:.1f} s of processor time, {sum(map(len, found.values()))} wrong")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
