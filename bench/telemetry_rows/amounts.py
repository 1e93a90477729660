"""How much of everything: a slice of packets, frames or columns has so many times `num` rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bus_rows.session import Amounts
from esper.bench.effort import Mode

TIMES = {"packets": 5, "frames": 24, "columns": 96}
QUICK = Amounts(num=1_024, rounds=3, seconds=3.0)
AMOUNTS: Mapping[Mode, Amounts] = {
    "quick": QUICK,
    "gate": replace(QUICK, rounds=6, seconds=6.0),
    "full": Amounts(num=4_096, rounds=15, seconds=20.0),
}
