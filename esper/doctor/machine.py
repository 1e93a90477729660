"""Looks at this machine: nothing is loaded, started or written."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from esper.doctor.facts import MachineFacts

SHM = Path("/dev/shm")
GROUPS, OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
TIMEX_BYTES = 512  # struct timex has 208 on 64 bits; its first field, the modes, is 0: nothing is set
UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)


def machine_facts() -> MachineFacts:
    """All of it, in a few milliseconds."""
    return MachineFacts(
        python=sys.version_info[:2],
        torch=torch_version(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        quota=least_quota(GROUPS, OWN_GROUP),
        threads=os.environ.get("OMP_NUM_THREADS", ""),
        shm_free_bytes=free_bytes(SHM),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        clock_synced=clock_synced(),
    )


def torch_version() -> str:
    """As pip knows it; empty where it is not installed."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def least_quota(groups: Path, own: Path) -> float | None:
    """The least that this process's control group and those above it grant: a container's, or a unit's of systemd."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    inside = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    group = groups / inside
    above = [group, *group.parents]
    granted = [quota_of(each / "cpu.max") for each in above[: above.index(groups) + 1]]
    return min((quota for quota in granted if quota is not None), default=None)


def quota_of(path: Path) -> float | None:
    """Cores' worth of time that a control group grants (cgroup v2); None: no bound, or not told."""
    try:
        granted, _, period = path.read_text().strip().partition(" ")
        return None if granted == "max" else int(granted) / int(period)
    except (OSError, ValueError):
        return None


def free_bytes(path: Path) -> int | None:
    """None: there is no such file system."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def clock_synced() -> bool | None:
    """Whether the kernel's clock is kept right by NTP or the like, by adjtimex(2); None: the kernel does not tell."""
    call = getattr(ctypes.CDLL(None), "adjtimex", None)
    state = -1 if call is None else int(call(ctypes.create_string_buffer(TIMEX_BYTES)))
    return None if state < 0 else state != UNSYNCHRONISED
