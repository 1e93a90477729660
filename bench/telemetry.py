"""What both tiers of the telemetry fold, how fast and how soon, beside the bare client and numpy alone."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed

from telemetry_rows import critical, fold, latency, ratio
from telemetry_rows.amounts import FULL, QUICK

from bus_arms.arm import ArmError
from bus_rows.session import Session
from esper.bus.embedded import EmbeddedRedis
from esper.leyline.keyring import MasterKeyring
from report import Report

ROWS: Mapping[str, Callable[[Session, bool], None]] = {
    "fold": fold.measure,
    "latency": latency.measure,
    "ratio": ratio.measure,
    "critical": critical.measure,
}


def main() -> int:
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        MasterKeyring.new(time.time_ns()).save(directory / "master.json")
        with EmbeddedRedis(directory / "redis") as server:
            amounts = QUICK if given.quick else FULL
            amounts = replace(amounts, rounds=given.rounds or amounts.rounds)
            session = Session(server.url, directory, amounts, Report("telemetry"), random.Random(given.seed))
            try:
                for row in given.row or ROWS:
                    measure(row, session, given.quick)
            finally:
                session.close()
    session.report.show(given.json)
    return int(bool(session.failures))


def measure(row: str, session: Session, quick: bool) -> None:
    """One row after another: what fails in one does not keep the next from being measured."""
    try:
        ROWS[row](session, quick)
    except ArmError as error:
        session.failed(row, "all", "", error)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, and nothing else")
    parser.add_argument("--quick", action="store_true", help="ends within 60 s on two cores")
    parser.add_argument(
        "--row", action="append", default=[], choices=list(ROWS), help="only this; several may be given"
    )
    parser.add_argument("--rounds", type=int, help="how often each arm takes its turn")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which arms take turns")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
