"""How much of everything."""

from __future__ import annotations

from bus_rows.session import Amounts

FULL = Amounts(num=1, rounds=15, calls=0, seconds=20.0, backlog=0)
QUICK = Amounts(num=1, rounds=3, calls=0, seconds=3.0, backlog=0)
ROWS_A_SLICE = {"packets": 20_480, "frames": 98_304, "columns": 393_216}
QUICK_SHARE = 4  # a quick slice is shorter by this
