"""Memory of a piece of work: its peak, and what is still there when it is over."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import TracebackType

from esper.bench.arm import Ready
from esper.bench.effort import Effort
from esper.bench.figures import MEASURED, Figure, not_measured
from esper.bench.memory.probes import Account, CudaDevice, Probe, Resident, Traced
from esper.bench.row import Comparison, Measurement
from esper.bench.timing.blame import blaming
from esper.bench.timing.collector import settled_collector
from esper.bench.timing.opened import agree, missing, opened

UNITS = {"fragmentation": "of reserved"}
WARM_CALLS = 2
"""Before a call is looked at: what is made once, and what allocators stock, is no call's."""


class MemoryProfiler:
    """Around one piece of work; afterwards `account` has what it took, in bytes beyond what there was.

    `trace`: have tracemalloc watch too, which slows Python's allocations down and keeps a resident table of them. Off
    where time is taken as well, or where resident memory is what counts.
    """

    def __init__(self, trace: bool = True) -> None:
        self._trace = trace
        self._probes: list[Probe] = []
        self.account = Account()

    def __enter__(self) -> MemoryProfiler:
        gc.collect()
        self.account = Account()
        self._probes = [CudaDevice(), Resident(), *([Traced()] if self._trace else [])]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for probe in self._probes:
            probe.peak(self.account)
        gc.collect()
        for probe in reversed(self._probes):
            probe.retained(self.account)

    def get_peak_memory(self) -> dict[str, float]:
        """Peaks in bytes, by name; those that can't be told here are left out, and are in `account.missing`."""
        return {name: value for name, value in self.account.found.items() if name.startswith("peak")}


def memory_of(ready: Ready) -> Account:
    """Of one call whose result is let go, after two others; once for what is traced, once more for all else."""
    for _ in range(WARM_CALLS):
        ready.prepare()
        ready.call()
    both = Account()
    for trace in (True, False):
        ready.prepare()
        with MemoryProfiler(trace) as profiler:
            ready.call()
        both.found.update(profiler.account.found)
        both.missing.update(profiler.account.missing)
    return both


def in_memory(row: Comparison) -> Measurement:
    """What the calls of the arms of this row take, instead of how long."""

    def measure(effort: Effort) -> Iterator[Figure]:
        absent = missing(row)
        with opened(row, tuple(arm for arm in row.arms if arm.name not in absent)) as ready:
            agree(row, ready)
            with settled_collector():
                accounts = {name: _blamed(row.name, name, arm) for name, arm in ready.items()}
        for name, account in accounts.items():
            yield from figures_of(row, name, account)
        for name, why in absent.items():
            yield Figure(f"{row.name}, memory", name, "peak RSS", None, "B", label=not_measured(why), shape=row.shape)

    return Measurement(f"{row.name}, memory", row.family, measure)


def _blamed(row: str, name: str, arm: Ready) -> Account:
    with blaming(row, name):
        return memory_of(arm)


def figures_of(row: Comparison, arm: str, account: Account) -> Iterator[Figure]:
    name = f"{row.name}, memory"
    for stat, value in account.found.items():
        yield Figure(name, arm, stat, value, UNITS.get(stat, "B"), 1, MEASURED, row.shape)
    for stat, why in account.missing.items():
        yield Figure(name, arm, stat, None, UNITS.get(stat, "B"), 0, not_measured(why), row.shape)
