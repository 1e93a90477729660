"""Files that one exporter writes to, and no second one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esper.errors import SettingError


@contextmanager
def held(folder: Path, name: str) -> Iterator[None]:
    """Keep others from writing there while the block runs. SettingError where one does, or where one cannot write."""
    lock = folder / f".{name}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise SettingError("path", str(folder / name), f"a place that can be written to ({error.strerror})") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise SettingError("path", str(folder / name), "one that no other exporter writes to") from None
    finally:
        os.close(descriptor)
