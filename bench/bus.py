"""What the bus carries, and how fast, beside the bare client, the server's own limit, and others who carry messages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bus_rows import allocations, consume, flat, latency, publish
from bus_rows.served import rows_of
from bus_rows.session import AMOUNTS

FAMILY = "bus"
PEERS = Path(__file__).resolve().parent / "peers" / "bus.py"
SEALS = ("hmac-verify", "hmac-verify-packet", "hmac-verify-state", "message-kinds")  # what a seal takes, and its bytes
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

    more = () if "--quick" in sys.argv else ("peers", *SEALS)  # which a minute is too short for
    main([FAMILY, *more], __file__, str(PEERS))
