"""Ranks of one run as threads of one process, which agree by the mean of what they say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Ranks:
    """`agree(rank)` is what a rank's collective is; `all(...)` has each do the same at once."""

    def __init__(self, num: int = 2) -> None:
        self._said: list[Tensor] = [torch.empty(0)] * num
        self._all_said, self._all_read = threading.Barrier(num), threading.Barrier(num)

    def agree(self, rank: int) -> Callable[[Tensor], Tensor]:
        def mean(value: Tensor) -> Tensor:
            self._said[rank] = value
            self._all_said.wait(timeout=120.0)
            found = torch.stack(self._said).mean(0)
            self._all_read.wait(timeout=120.0)
            return found

        return mean

    def all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        with ThreadPoolExecutor(len(calls)) as pool:
            return [future.result(timeout=120.0) for future in [pool.submit(call) for call in calls]]
