"""How much memory the process holds, and how much of it the allocator could have given back."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import torch

MEGA = 1e6
PAGE = os.sysconf("SC_PAGE_SIZE")


def rss_mb() -> float:
    """Resident set size of this process, in MB (1e6 bytes)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / MEGA


def trimmed_mb() -> float:
    """The same once the C allocator has given back every free page that it can. NaN where there is no malloc_trim."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        return float("nan")
    libc.malloc_trim(0)
    return rss_mb()


def cuda_fragmentation() -> float | None:
    """Share of what torch has reserved on the device that no tensor uses and no other process can; None without CUDA.

    Reserved less allocated, of reserved: torch.cuda.memory_stats, "reserved_bytes" and "allocated_bytes".
    """
    if not torch.cuda.is_available():
        return None
    reserved = torch.cuda.memory_reserved()
    return (reserved - torch.cuda.memory_allocated()) / reserved if reserved else 0.0


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
