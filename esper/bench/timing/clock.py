"""How one call is timed: by the processor's clock, or by events on a CUDA device."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import repeat
from typing import Protocol

from esper.bench.arm import Ready


class Clock(Protocol):
    """Times a call, in seconds."""

    def time(self, call: Callable[[], object]) -> float: ...


class CpuClock:
    """perf_counter_ns: monotonic. Reading it is part of each sample, so that a call should take microseconds.

    A call that it can't tell from no time at all takes 1 ns, as ratios are of positive times.
    """

    def time(self, call: Callable[[], object]) -> float:
        began = time.perf_counter_ns()
        call()
        return max(time.perf_counter_ns() - began, 1) * 1e-9


class CudaClock:
    """Events on the device's current stream, which is idle when the first is recorded and waited for after the last.

    What the device does is timed, and what it waits for the processor's launches within the call.
    """

    def __init__(self, device: str) -> None:
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError(f"an arm is on {device}, and torch sees no CUDA device")
        self._cuda, self._device = torch.cuda, torch.device(device)
        with self._cuda.device(self._device):
            self._began, self._ended = (self._cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def time(self, call: Callable[[], object]) -> float:
        with self._cuda.device(self._device):
            self._cuda.synchronize()
            self._began.record()
            call()
            self._ended.record()
            self._cuda.synchronize()
        return max(float(self._began.elapsed_time(self._ended)) * 1e-3, 1e-9)


def clock_on(device: str) -> Clock:
    return CudaClock(device) if device.startswith("cuda") else CpuClock()


def timed(ready: Ready, calls: int = 1) -> Callable[[], float]:
    """So many calls in a row with what runs before them, in seconds of them all; only the calls are counted."""
    clock, call = clock_on(ready.device), in_a_row(ready.call, calls)

    def once() -> float:
        ready.prepare()
        return clock.time(call)

    return once


def in_a_row(call: Callable[[], object], calls: int) -> Callable[[], object]:
    """The call itself, or a loop around it, whose turns are in the time too."""
    if calls == 1:
        return call

    def loop() -> None:
        for _ in repeat(None, calls):
            call()

    return loop
