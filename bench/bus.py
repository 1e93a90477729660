"""What the bus carries, and how fast, beside the bare client and the server's own limit; its peers: bench/peers."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed

from bus_arms.arm import ArmError
from bus_rows import allocations, consume, flat, latency, publish
from bus_rows.session import FULL, QUICK, Session
from esper.bus.embedded import EmbeddedRedis
from esper.leyline.keyring import MasterKeyring
from report import Report

ROWS = {
    "consume": consume.measure,
    "publish": publish.measure,
    "latency": latency.measure,
    "flat": flat.measure,
    "allocations": allocations.measure,
}


def main() -> int:
    given = arguments()
    amounts = QUICK if given.quick else FULL
    chosen = {name: value for name in ("num", "rounds") if (value := getattr(given, name))}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        MasterKeyring.new(time.time_ns()).save(directory / "master.json")
        with EmbeddedRedis(directory / "redis") as server:
            session = Session(
                server.url,
                directory,
                replace(amounts, **chosen),
                Report("bus"),
                random.Random(given.seed),
            )
            try:
                for row in given.row or ROWS:
                    measure(row, session)
            finally:
                session.close()
    session.report.show(given.json)
    return int(bool(session.failures))


def measure(row: str, session: Session) -> None:
    """One row after another: what fails in one does not keep the next from being measured."""
    try:
        ROWS[row](session)
    except ArmError as error:
        session.failed(row, "all", "", error)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, and nothing else")
    parser.add_argument("--quick", action="store_true", help="ends within 60 s on two cores")
    parser.add_argument(
        "--row", action="append", default=[], choices=list(ROWS), help="only this; several may be given"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order in which arms take turns")
    parser.add_argument("--num", type=int, default=0, help="messages a slice")
    parser.add_argument("--rounds", type=int, default=0, help="slices of each arm")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
