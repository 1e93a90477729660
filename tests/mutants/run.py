"""Plants bugs and runs the tests that must find them: `python -m tests.mutants.run [--sample N --seed S] [NAME...]`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutant import Mutant, Verdict, judge
from tests.mutants.table import MUTANTS


def main() -> int:
    given = arguments()
    began = time.monotonic()
    with ThreadPoolExecutor(given.jobs) as pool:
        verdicts = list(pool.map(tried, drawn(chosen(given.names), given.sample, given.seed)))
    survived = [verdict for verdict in verdicts if not verdict.found]
    for verdict in survived:
        print(f"--- {verdict.mutant.name}: pytest ended with {verdict.status}\n{verdict.output[-2000:]}")
    print(f"{len(verdicts) - len(survived)} passed, {len(survived)} failed")
    print(f"mutants: {len(verdicts) - len(survived)} of {len(verdicts)} found in {time.monotonic() - began:.0f} s")
    return int(bool(survived))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="so many of them, drawn by the seed")
    parser.add_argument("--seed", default="", help="of the draw, such as a commit: each one tries others")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    return parser.parse_args()


def chosen(names: list[str]) -> list[Mutant]:
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := sorted(set(names) - set(known)):
        sys.exit(f"mutant is {unknown[0]!r}; expected one of {', '.join(known)}")
    return [known[name] for name in names or known]


def drawn(mutants: list[Mutant], num: int, seed: str) -> list[Mutant]:
    """So many of them, others for another seed; all where none or more are asked for."""
    return random.Random(seed).sample(mutants, num) if 0 < num < len(mutants) else mutants


def tried(mutant: Mutant) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="mutant-") as place:
        verdict = judge(mutant, Path(place))
    print(f"{'found' if verdict.found else 'SURVIVED':<9} {mutant.name:<40} {' '.join(mutant.caught_by)}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
