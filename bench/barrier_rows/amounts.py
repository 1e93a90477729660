"""How much of everything: `rounds` slices of each arm, with `num` rounds of the barrier in each."""

from __future__ import annotations

from collections.abc import Mapping

from bus_rows.session import Amounts
from esper.bench.effort import Mode

QUICK = Amounts(num=100, rounds=4, calls=40)
AMOUNTS: Mapping[Mode, Amounts] = {
    "quick": QUICK,
    "gate": Amounts(num=200, rounds=6, calls=100),
    "full": Amounts(num=400, rounds=12, calls=200),
}
