"""Where memory is read: the kernel's account of this process, Python's allocators, a CUDA device."""

from __future__ import annotations

import ctypes
import sys
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

SELF = Path("/proc/self")
RESET_PEAK = "5"
"""Written to clear_refs: VmHWM is what is resident now (proc(5), Linux 4.0)."""
NO_PROC = "this system has no /proc/self/clear_refs to write to"
NO_CUDA = "torch is not loaded, or sees no CUDA device"
MEGA = 1e6


@dataclass(frozen=True, slots=True)
class Account:
    """Figures by name, and the reasons why others are missing."""

    found: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class Probe(Protocol):
    """Looks when it is made; says the peak since then, and later what is still there. Bytes beyond the first look."""

    def peak(self, account: Account) -> None: ...

    def retained(self, account: Account) -> None: ...


class Resident:
    """Pages of the process that are in memory: of all threads and libraries.

    What the C library's allocator keeps in stock goes back to the kernel before each look (malloc_trim, of glibc), or
    else work would be done in the stock of what ran before it and take no page.
    """

    def __init__(self) -> None:
        trim()
        try:
            (SELF / "clear_refs").write_text(RESET_PEAK)
            self._start = status_bytes("VmRSS")
        except OSError:
            self._start = -1

    def peak(self, account: Account) -> None:
        self._tell(account, "peak RSS", "VmHWM")

    def retained(self, account: Account) -> None:
        trim()
        self._tell(account, "retained RSS", "VmRSS")

    def _tell(self, account: Account, name: str, of: str) -> None:
        if self._start < 0:
            account.missing[name] = NO_PROC
        else:
            account.found[name] = float(status_bytes(of) - self._start)


class Traced:
    """What Python's allocators gave, and whoever reports to tracemalloc: numpy's arrays, not torch's tensors."""

    def __init__(self) -> None:
        self._is_ours = not tracemalloc.is_tracing()
        if self._is_ours:
            tracemalloc.start()
        tracemalloc.reset_peak()
        self._start = tracemalloc.get_traced_memory()[0]

    def peak(self, account: Account) -> None:
        account.found["peak traced"] = float(tracemalloc.get_traced_memory()[1] - self._start)

    def retained(self, account: Account) -> None:
        account.found["retained traced"] = float(tracemalloc.get_traced_memory()[0] - self._start)
        if self._is_ours:
            tracemalloc.stop()


class CudaDevice:
    """torch's allocator on the current device. `fragmentation`: the share of what it reserved that nobody holds now."""

    def __init__(self) -> None:
        self._cuda = cuda()
        if self._cuda is not None:
            self._cuda.synchronize()
            self._cuda.reset_peak_memory_stats()
            self._allocated, self._reserved = self._cuda.memory_allocated(), self._cuda.memory_reserved()

    def peak(self, account: Account) -> None:
        if self._cuda is None:
            account.missing.update({f"peak {name} on CUDA": NO_CUDA for name in ("allocated", "reserved")})
            return
        self._cuda.synchronize()
        account.found["peak allocated on CUDA"] = float(self._cuda.max_memory_allocated() - self._allocated)
        account.found["peak reserved on CUDA"] = float(self._cuda.max_memory_reserved() - self._reserved)

    def retained(self, account: Account) -> None:
        if self._cuda is None:
            account.missing.update({"retained on CUDA": NO_CUDA, "fragmentation": NO_CUDA})
            return
        account.found["retained on CUDA"] = float(self._cuda.memory_allocated() - self._allocated)
        account.found["fragmentation"] = fragmentation(self._cuda)


def cuda() -> Any:
    """torch.cuda, where torch is loaded and sees a device; else None."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


def fragmentation(of: Any) -> float:
    """Share of what torch has reserved on the current device that no tensor uses, and no other process can.

    Reserved less allocated, of reserved: torch.cuda.memory_stats, "reserved_bytes" and "allocated_bytes".
    """
    reserved = of.memory_reserved()
    return (reserved - of.memory_allocated()) / reserved if reserved else 0.0


def trim() -> bool:
    """Give free memory back to the kernel. False where nothing is: the C library is another one than glibc."""
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
    return give_back is not None


def rss_mb() -> float:
    """Resident set size of this process, in MB (1e6 bytes)."""
    return status_bytes("VmRSS") / MEGA


def status_bytes(name: str) -> int:
    """A field of /proc/self/status that is in kB. Raises OSError where there is none."""
    for line in (SELF / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{SELF}/status has no {name}")
