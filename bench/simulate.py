"""Runs the bus's protocols under seeded simulation: virtual time, a model of Redis, crashes, losses, an adversary."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the simulation lives beside the suite that runs 200 of its seeds

from tests.simulation.run import Outcome, run  # noqa: E402


def main() -> int:
    given = arguments()
    if given.seed is not None:
        return show(run(given.seed, trace=given.trace))
    began, failed, counts = time.monotonic(), [], Counter[str]()
    for seed in range(given.first, given.first + given.seeds):
        outcome = run(seed)
        counts.update(tally(outcome))
        if outcome.record.violations:
            failed.append(seed)
            print(outcome.story, file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    if given.json:
        print_rows(given.first, given.seeds, failed, counts, seconds)
    else:
        print(f"{given.seeds:,} seeds, {len(failed)} with violations, {seconds:.1f} s; {told(counts)}")
    return int(bool(failed))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--seed", type=int, help="only this world")
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happens in it")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser.parse_args()


def show(outcome: Outcome) -> int:
    """One world: its plan, what happened, what was broken."""
    print(outcome.plan)
    print("\n".join(outcome.trace))
    print(f"quiet {outcome.settled_s:.1f} s after trouble ended; {told(tally(outcome))}")
    print("\n".join(outcome.record.violations) or "nothing is broken")
    return int(bool(outcome.record.violations))


def tally(outcome: Outcome) -> Counter[str]:
    record = outcome.record
    own = sum(len(effects) for effects in record.local.values())
    counts = Counter(messages=len(record.sent), effects=len(record.effects) + own, dead_letters=len(record.dead))
    counts.update(crashes=record.num_crashes, virtual_s=int(outcome.seconds))
    counts.update({name.replace(" ", "_"): number for name, number in record.faults.items()})
    return counts


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items()))


def print_rows(first: int, seeds: int, failed: list[int], counts: Counter[str], seconds: float) -> None:
    row = {"bench": "simulate", "row": "protocols", "arm": "seeded", "n": seeds, "label": "measured"}
    figures = {"violations": len(failed), **counts}
    for name, number in figures.items():
        print(json.dumps({**row, "stat": "count", "value": number, "unit": name, "first_seed": first}))
    print(json.dumps({**row, "stat": "rate", "value": seeds / seconds, "unit": "seeds/s", "first_seed": first}))


if __name__ == "__main__":
    sys.exit(main())
