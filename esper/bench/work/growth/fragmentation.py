"""What hundreds of grafts and culls leave behind in memory, and how much of that the allocator merely keeps."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator

from esper.bench.effort import Effort
from esper.bench.figures import DERIVED, Figure, not_measured
from esper.bench.memory.probes import cuda, fragmentation, rss_mb, trim
from esper.bench.work.growth.churn import STEPS_PER_LIFE, Churn, device

ROW = "memory-fragmentation"
MOST, ASPIRED = 0.08, 0.05  # performance validation, 1.2: below 8 % with KD, below 5 % without
NUM_QUICK, NUM_LIVES, NUM_WARM = 3, 500, 2
NO_CUDA = "no CUDA device: torch's caching allocator, whose fragmentation the documents mean, runs on none else"


def measure(effort: Effort) -> Iterator[Figure]:
    """A host of 1.1 M parameters in training, in whose sites seeds of different sizes come and go."""
    churn, num = Churn(device()), NUM_QUICK if effort.is_quick else NUM_LIVES
    for _ in range(NUM_WARM):
        churn.life()
    began = trimmed_mb()
    for _ in range(num):
        churn.life()
    held, left = rss_mb(), trimmed_mb()
    shape = f"{num} lives of seeds, {STEPS_PER_LIFE} steps each"
    yield _on_gpu(num, shape)
    yield Figure(ROW, "CPU", "retained", left - began, "MB", num, DERIVED, shape)
    kept = (held - left) / held
    if math.isnan(kept):
        why = not_measured("the C library has no malloc_trim")
        yield Figure(ROW, "CPU", "free, but kept", None, "of RSS", num, why, shape)
    else:
        yield Figure(ROW, "CPU", "free, but kept", kept, "of RSS", num, DERIVED, shape, target=MOST, aspiration=ASPIRED)


def trimmed_mb() -> float:
    """Resident memory once the C allocator has given back every free page that it can. NaN where it can't be asked."""
    gc.collect()
    return rss_mb() if trim() else math.nan


def _on_gpu(num: int, shape: str) -> Figure:
    of = cuda()
    if of is None:
        return Figure(ROW, "GPU", "fragmentation", None, "of reserved", 0, not_measured(NO_CUDA), shape)
    of.synchronize()
    found = fragmentation(of)
    return Figure(ROW, "GPU", "fragmentation", found, "of reserved", num, shape=shape, target=MOST, aspiration=ASPIRED)
