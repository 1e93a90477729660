"""How long workers take to agree on a step, and what it costs them, beside plain redis-py doing the same hops."""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed

from barrier_rows import digest, rounds
from esper.bus.embedded import EmbeddedRedis
from report import Report

ROWS = {"rounds": rounds.measure, "digest": digest.measure}


def main() -> int:
    given, report = arguments(), Report("barrier")
    with tempfile.TemporaryDirectory(prefix="bench-") as name, EmbeddedRedis(Path(name) / "redis") as server:
        measured = [
            report.attempt(row, partial(ROWS[row], report, server.url, Path(name), quick=given.quick))
            for row in given.row or ROWS
        ]
    report.show(given.json)
    return int(not all(measured))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, and nothing else")
    parser.add_argument("--quick", action="store_true", help="ends within 60 s on two cores")
    parser.add_argument("--row", action="append", default=[], choices=list(ROWS), help="only this; may be repeated")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
