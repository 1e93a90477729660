"""A byte in memory that a trainer and its runtime share: whether something may have come, without a system call."""

from __future__ import annotations

import mmap
import os
from tempfile import TemporaryFile
from typing import IO


def new_doorbell() -> IO[bytes]:
    """A file without a name, for a child to inherit and for both to map; it goes with its last holder."""
    try:
        file: IO[bytes] = os.fdopen(os.memfd_create("esper-doorbell"), "r+b")
    except (AttributeError, OSError):  # a python built for an old libc; vm.memfd_noexec=2, or a filter of system calls
        file = TemporaryFile()  # noqa: SIM115  it is the caller's
    file.truncate(1)
    return file


def mapped(descriptor: int) -> mmap.mmap:
    """Its first byte is 0 where nothing has come since the last look began."""
    return mmap.mmap(descriptor, 1)


def ring(doorbell: mmap.mmap) -> None:
    """Once a look finds what was sent, and no sooner: a look takes the ring away as it begins."""
    doorbell[0] = 1
