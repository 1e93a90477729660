"""What a script prints is lost where its log's disk is full, and ends no training."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from io import BufferedWriter, FileIO, RawIOBase, TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Lossy(FileIO):
    """A descriptor of somebody else's, which takes what is written or loses it where there is no room."""

    def write(self, given: ReadableBuffer, /) -> int:
        """All of it, as far as who prints can tell."""
        try:
            return super().write(given)
        except OSError as error:
            if error.errno not in FULL:
                raise
            return memoryview(given).nbytes


def outlive_a_full_disk() -> None:
    """Have print() lose what its log does not take, where `esper up` keeps this process and its log.

    Elsewhere a script's output is its own, and print() raises as it always does.
    """
    from esper.runtime.notify import SOCKET  # asyncio, which a short command does without

    if os.environ.get(SOCKET):
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, TextIOWrapper) and stream is getattr(sys, f"__{name}__") and is_file(stream):
                setattr(sys, name, lossy(stream))


def is_file(stream: TextIOWrapper) -> bool:
    """Not a terminal, nor a pipe."""
    return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)


def lossy(stream: TextIOWrapper) -> TextIOWrapper:
    """As the one that it takes the place of, unbuffered where that is (PYTHONUNBUFFERED)."""
    with suppress(OSError):
        stream.flush()
    raw = Lossy(stream.fileno(), "w", closefd=False)
    return TextIOWrapper(
        raw if isinstance(stream.buffer, RawIOBase) else BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
