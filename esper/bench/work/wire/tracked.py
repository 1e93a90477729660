"""How many objects of a message the garbage collector must track, counted with the collector off."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.memory.tracking import FEW, MANY, per_call
from esper.bench.timing.collector import settled_collector
from esper.bench.work.wire.messages import MESSAGES
from esper.bench.work.wire.sealing import Wire

ROW = "gc-allocations"
TARGET, ASPIRED = 4.0, 2.0  # performance validation, 1.1
NAMES = ("telemetry packet", "adaptation command", "system state", "frame of 32 packets")


def measure(effort: Effort) -> Iterator[Figure]:
    """Per message, alive at the end: those that its sender leaves behind, and those that its reader holds."""
    ways = [(name, way, make) for name in NAMES for way, make in WAYS.items()]
    with settled_collector():  # each count begins with a collection, which looks at all that is not frozen
        values = [per_call(make(name)) for name, _, make in ways]
    for (name, way, _), value in zip(ways, values, strict=True):
        yield Figure(ROW, f"{name}, {way}", "count", value, "objects", MANY - FEW, target=TARGET, aspiration=ASPIRED)


def sending(name: str) -> Callable[[], object]:
    wire, make = Wire(name), MESSAGES[name]
    return lambda: wire.sealer.seal(make())


def receiving(name: str) -> Callable[[], object]:
    wire = Wire(name)

    def act() -> object:
        if not wire.num_stocked:
            raise ValueError(f"no {name} is left to open")
        return wire.open()

    for _ in range(2 * (FEW + MANY) // 256 + 1):
        wire.restock()
    return act


WAYS = {"build and seal": sending, "open": receiving}
