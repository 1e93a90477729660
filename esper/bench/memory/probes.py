"""Where memory is read: the kernel's account of this process, Python's allocators, a CUDA device."""

from __future__ import annotations

import ctypes
import sys
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

SELF = Path("/proc/self")
RESET_PEAK = "5"
"""Written to clear_refs: VmHWM is what is resident now (proc(5), Linux 4.0)."""
NO_PROC = "this system has no /proc/self/clear_refs to write to"
NO_CUDA = "torch is not loaded, or sees no CUDA device"


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
        torch = sys.modules.get("torch")
        self._cuda = torch.cuda if torch is not None and torch.cuda.is_available() else None
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
        allocated, reserved = self._cuda.memory_allocated(), self._cuda.memory_reserved()
        account.found["retained on CUDA"] = float(allocated - self._allocated)
        account.found["fragmentation"] = 1.0 - allocated / reserved if reserved else 0.0


def trim() -> None:
    """Give free memory back to the kernel; nothing where the C library is another one than glibc."""
    if (give_back := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        give_back(0)


def status_bytes(name: str) -> int:
    """A field of /proc/self/status that is in kB. Raises OSError where there is none."""
    for line in (SELF / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{SELF}/status has no {name}")
