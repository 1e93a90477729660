"""What a call allocates, by the allocator's own events."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch


def peak_bytes(call: Callable[[], object]) -> int:
    """Most that one call has allocated and not yet freed at any moment, where tensors are made by default."""
    if torch.get_default_device().type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else each profile says on stderr that it began and ended
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        call()
    events = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return int(peak)
