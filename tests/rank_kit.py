"""Ranks of one run as threads of one process, which agree by the mean of what they say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

T = TypeVar("T")


class Ranks:
    """`agree(rank)` is what a rank's collective is; `all(...)` has each do the same.

    One runs at a time, until it waits for the others: torch keeps random numbers, and whether a mode is entered that no
    compiled code goes with, for a whole process, which elsewhere is a rank's own.
    """

    def __init__(self, num: int = 2) -> None:
        self._said: list[Tensor] = [torch.empty(0)] * num
        self._all_said, self._all_read = threading.Barrier(num), threading.Barrier(num)
        self._turn = threading.Lock()

    def agree(self, rank: int) -> Callable[[Tensor], Tensor]:
        def mean(value: Tensor) -> Tensor:
            self._said[rank] = value
            self._meet(self._all_said)
            found = torch.stack(self._said).mean(0)
            self._meet(self._all_read)
            return found

        return mean

    def _meet(self, barrier: threading.Barrier) -> None:
        self._turn.release()
        try:
            barrier.wait(timeout=120.0)
        finally:
            self._turn.acquire()

    def all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        with ThreadPoolExecutor(len(calls)) as pool:
            done = [future.result(timeout=120.0) for future in [pool.submit(self._in_turn, call) for call in calls]]
        assert not is_in_torch_dispatch_mode()  # else whatever is compiled from now on would run eagerly
        return done

    def _in_turn(self, call: Callable[[], T]) -> T:
        with self._turn:
            return call()


class Averaging:
    """Threads that average numbers, each of them calling alike."""

    def __init__(self, num: int) -> None:
        self.values = [0.0] * num
        self.barrier = threading.Barrier(num, timeout=120)

    def mean(self, rank: int, value: float) -> float:
        self.values[rank] = value
        self.barrier.wait()
        mean = sum(self.values) / len(self.values)
        self.barrier.wait()
        return mean
