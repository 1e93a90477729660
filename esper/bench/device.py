"""Where rows that can work on a CUDA device do: on the one that --device names, else on the processor."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

from esper.errors import SettingError

DEVICE = "ESPER_BENCH_DEVICE"
"""Inherited by the processes that two revisions are measured in."""


def device() -> str:
    return os.environ.get(DEVICE) or "cpu"


def choose(name: str) -> None:
    """For the rows that are measured from now on. Raises SettingError where torch sees no such device."""
    import torch

    there = ["cpu", "cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if not torch.cuda.is_available():
        there = ["cpu"]
    if name not in there:
        raise SettingError("--device", name, f"one that torch sees: {', '.join(there)}")
    os.environ.pop(DEVICE, None)
    if name != "cpu":
        os.environ[DEVICE] = name


def around(is_placed: bool) -> AbstractContextManager[object]:
    """Where a row's tensors are made. Calls are timed outside of it: it takes a part of each."""
    if not is_placed or device() == "cpu":
        return nullcontext()
    import torch

    return torch.device(device())


def told(is_placed: bool) -> str:
    """Where a row works, as its figures say it; empty where every row works on the processor."""
    if device() == "cpu":
        return ""
    return f"on {device()}" if is_placed else "on the processor"
