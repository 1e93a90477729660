"""How many objects of a message the garbage collector must track, counted with the collector off."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.work.messages import MESSAGES
from esper.bench.work.wire import Wire

ROW = "gc-allocations"
TARGET, ASPIRED = 4.0, 2.0  # performance validation, 1.1
FEW, MANY = 60, 240  # the difference leaves out what is made once
NAMES = ("telemetry packet", "adaptation command", "system state", "frame of 32 packets")


def measure(effort: Effort) -> Iterator[Figure]:
    """Per message, alive at the end: those that its sender leaves behind, and those that its reader holds."""
    for name in NAMES:
        for way, make in {"build and seal": sending, "open": receiving}.items():
            value = per_message(make, name)
            yield Figure(
                ROW, f"{name}, {way}", "count", value, "objects", MANY - FEW, target=TARGET, aspiration=ASPIRED
            )


def per_message(make: Callable[[str], Callable[[], object]], name: str) -> float:
    act = make(name)
    counts = [tracked(act, num) for num in (FEW, MANY, FEW, MANY)]
    return (counts[3] - counts[2]) / (MANY - FEW)


def tracked(act: Callable[[], object], num: int) -> int:
    """Tracked objects that `num` calls have added while what they returned is held."""
    held: list[object] = [None] * num
    with collector_off():
        before = gc.get_count()[0]
        for at in range(num):
            held[at] = act()
        return gc.get_count()[0] - before


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
