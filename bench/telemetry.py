"""What both tiers of the telemetry fold, how fast and how soon, beside the bare client and numpy alone."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bus_rows.served import rows_of
from telemetry_rows import critical, fold, latency, ratio
from telemetry_rows.amounts import AMOUNTS

FAMILY = "tiers"
ROWS = rows_of(
    FAMILY,
    {"fold": fold.measure, "latency": latency.measure, "ratio": ratio.measure, "critical": critical.measure},
    AMOUNTS,
)

if __name__ == "__main__":
    from script import main

    main([FAMILY], __file__)
