"""Kill writers of checkpoints, flip bits and forge files, many times; status 1 where one trial met what must not be."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed

import torch

from tests.checkpoint_trials import BrokenError, flips, forgeries, kills

TRIALS = {"kills": kills, "flips": flips, "forgeries": forgeries}


def main() -> int:
    given = arguments()
    torch.set_num_threads(1)
    broken = False
    for name, trial in TRIALS.items():
        if num := getattr(given, name):
            again = f"python bench/checkpoints.py --{name} {num} --seed {given.seed}"
            begun = time.monotonic()
            try:
                met: dict[str, object] = dict(trial(num, given.seed))
            except (BrokenError, OSError) as error:
                met, broken = {"broken": str(error)}, True
            seconds = round(time.monotonic() - begun, 1)
            print(json.dumps({"trial": name, "n": num, **met, "seconds": seconds, "again": again}), flush=True)
    return int(broken)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=0, help="of a process that writes checkpoints; 500 take minutes")
    parser.add_argument("--flips", type=int, default=0, help="bits, one at a time")
    parser.add_argument("--forgeries", type=int, default=0, help="pickles, archives and broken safetensors")
    parser.add_argument("--seed", type=int, default=0, help="of every choice")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
