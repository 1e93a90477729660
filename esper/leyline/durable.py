"""Files that are there whole, also after a crash: replaced in one step, and their names on disk."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """What the block writes is the file once it ends: a reader meets the old one or the new one, and a crash leaves
    either; after this the new one, also a power cut. An error, such as OSError, leaves the old one and nothing else.
    A link stays one: root would put a file in the stead of /dev/stdout. So does a pipe, a terminal or another device,
    which is written to as it is."""
    at = Path(os.path.realpath(path)) if os.path.islink(path) else path  # a folder may lie too deep to be named whole
    if _is_device(path, at):
        with open(path, "wb") as file:
            yield file
        return
    aside = at.with_name(f".{at.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.rename(at)
        sync_folder(at.parent)
    finally:
        with suppress(OSError):  # it is the file by now; or its name is too long, and there is none
            aside.unlink()


def _is_device(path: Path, at: Path) -> bool:
    """Whether something is there that is neither a file nor a folder, or has lost its name; links lead to `at`."""
    try:
        mode = path.stat().st_mode
    except OSError:  # nothing is there, or it can't be reached: whoever writes to it is told
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or not at.exists()


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk: a file made or renamed there is found after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
