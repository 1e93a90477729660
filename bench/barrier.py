"""How long workers take to agree on a step, and what it costs them, beside plain redis-py doing the same hops."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from barrier_rows import digest, rounds
from barrier_rows.amounts import AMOUNTS
from bus_rows.served import rows_of

FAMILY = "barrier"
ROWS = rows_of(FAMILY, {"rounds": rounds.measure, "digest": digest.measure}, AMOUNTS)

if __name__ == "__main__":
    from script import main

    main([FAMILY], __file__)
