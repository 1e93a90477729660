"""What one Redis carries as processes, groups and seeds grow, and what each message costs it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bus_rows.served import rows_of
from scale_arms.rows import AMOUNTS, carried, fanned_out, grown

FAMILY = "scale"
ROWS = rows_of(FAMILY, {"carried": carried, "fanned-out": fanned_out, "grown": grown}, AMOUNTS)

if __name__ == "__main__":
    from script import main

    main([FAMILY], __file__)
