"""Kill writers of checkpoints and rollbacks, flip bits, forge files; status 1 where one trial met what must not be."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed

import structlog
import torch

from tests.checkpoint_trials import BrokenError, flips, forgeries, kills, rollbacks

TRIALS = {"kills": kills, "flips": flips, "forgeries": forgeries, "rollbacks": rollbacks}


def main() -> int:
    given = arguments()
    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # JSON alone on stdout
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
    parser.add_argument("--rollbacks", type=int, default=0, help="of a process that goes back and makes a checkpoint")
    parser.add_argument("--seed", type=int, default=0, help="of every choice")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
