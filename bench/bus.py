"""What the bus carries, and how fast, beside the bare client and the server's own limit; its peers: bench/peers."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bus_rows import allocations, consume, flat, latency, publish
from bus_rows.served import rows_of
from bus_rows.session import AMOUNTS

FAMILY = "bus"
ROWS = rows_of(
    FAMILY,
    {
        "consume": consume.measure,
        "publish": publish.measure,
        "latency": latency.measure,
        "flat": flat.measure,
        "allocations": allocations.measure,
    },
    AMOUNTS,
)

if __name__ == "__main__":
    from script import main

    main([FAMILY], __file__)
