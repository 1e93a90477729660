"""What a training step costs with slots in its model, and with a run attached. The arm is drawn at random per step."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed

import structlog
import torch

from report import Report

ROWS = ("dormant", "attached")
QUICK, FULL = 2_500, 60_000  # steps of each arm


def main() -> int:
    given, report = arguments(), Report("step")
    torch.set_num_threads(1)
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),  # stdout has the figures alone
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )
    num = given.num or (QUICK if given.quick else FULL)
    failures = [row for row in given.row or ROWS if not measured(row, report, num, given.seed)]
    report.show(given.json)
    return int(bool(failures))


def measured(row: str, report: Report, num: int, seed: int) -> bool:
    measure = importlib.import_module(f"step_rows.{row}").measure
    return report.attempt(row, partial(measure, report, num, seed))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, and nothing else")
    parser.add_argument("--quick", action="store_true", help="ends within 60 s on two cores")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which arms take turns")
    parser.add_argument("--num", type=int, default=0, help=f"steps of each arm; default {FULL}, quick {QUICK}")
    parser.add_argument("--row", action="append", default=[], choices=ROWS, help="only this; both may be given")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
