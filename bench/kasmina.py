"""What seeds cost and gain: every file of bench/kasmina_rows is a row, with measure(report, quick)."""

from __future__ import annotations

import argparse
import importlib
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed

import structlog
import torch

from report import Report

ROWS = sorted(path.stem for path in (Path(__file__).parent / "kasmina_rows").glob("[a-z]*.py"))


def main() -> int:
    given, report = arguments(), Report("kasmina")
    torch.set_num_threads(1)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # stdout has the figures alone
    failures = [row for row in given.row or ROWS if not measured(row, report, given.quick)]
    report.show(given.json)
    return int(bool(failures))


def measured(row: str, report: Report, quick: bool) -> bool:
    measure = importlib.import_module(f"kasmina_rows.{row}").measure
    return report.attempt(row, partial(measure, report, quick))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, and nothing else")
    parser.add_argument("--quick", action="store_true", help="each row in a few seconds")
    parser.add_argument("--row", action="append", default=[], choices=ROWS, help="only this; several may be given")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
