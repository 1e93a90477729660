"""What the kernel tells of processes: who leads whom, who is left of a group, and how much memory it holds."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_GENERATIONS = 16
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc/<pid>/stat. `is_zombie`: it has ended, and nobody has asked how."""

    pid: int
    parent: int
    group: int
    rss_bytes: int
    is_zombie: bool


def look(pid: int) -> Process | None:
    """None: there is no such process, or it is not for us to see."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = line.rpartition(b")")[2].split()  # the name before it may hold blanks, and bytes that are no text
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[21]) * PAGE_BYTES, fields[0] in b"ZX")


def living() -> Iterator[Process]:
    """Every process that has not ended."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := look(int(name))) is not None and not found.is_zombie:
            yield found


def is_left(group: int) -> bool:
    """Whether a process group has anybody in it. Where nobody asks how orphans ended, they stay as zombies."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # or the number is somebody else's by now
        return False
    return any(process.group == group for process in living())


def rss_bytes(groups: Collection[int]) -> dict[int, int]:
    """Resident memory of each process group; what its processes share is counted once for each of them."""
    found = dict.fromkeys(groups, 0)
    for process in living():
        if process.group in found:
            found[process.group] += process.rss_bytes
    return found


def ancestor(pid: int, known: Collection[int]) -> int | None:
    """The nearest of these that a process is, or comes from."""
    for _ in range(MOST_GENERATIONS):
        if pid in known:
            return pid
        if (found := look(pid)) is None:
            return None
        pid = found.parent
    return None
