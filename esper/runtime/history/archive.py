"""A run's logs on disk: what is trimmed from a stream lies here first, sealed as it was, and is never changed again."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from esper.errors import EsperError
from esper.leyline.archive import Entry, decode_line, encode_line
from esper.leyline.durable import sync_folder

LOCK = ".lock"
_BLOCK_BYTES = 65_536


class ArchiveError(EsperError):
    """Nothing more can be archived now, so nothing more is trimmed."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"archive {path}: {why}")


@dataclass(frozen=True, slots=True)
class Archive:
    """A folder with one file of lines per stream, appended to by one process at a time. Knows nothing of Redis."""

    folder: Path

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Whether this process may append, for as long as the block lasts: not while another one does."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ArchiveError(self.folder, f"it can't be opened: {error.strerror}") from error
        try:
            yield _locked(lock)
        finally:
            os.close(lock)

    def through(self, stream: str) -> str:
        """Id of the last entry that lies here whole; `0-0`: none. LogLineError where the last line is no entry."""
        raw = _last_line(self.path(stream))
        line = decode_line(raw, 0) if raw else None
        return line.entry_id if isinstance(line, Entry) else "0-0"

    def append(self, stream: str, entries: Sequence[Entry]) -> None:
        """On disk when this returns. ArchiveError: none of them counts; half a line is cut off by the next call."""
        path = self.path(stream)
        try:
            is_new = not path.exists()
            with open(path, "ab") as file:
                file.truncate(_whole_bytes(path))
                file.writelines(map(encode_line, entries))
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                sync_folder(self.folder)
        except OSError as error:
            raise ArchiveError(path, f"it can't be written: {error.strerror}") from error

    def path(self, stream: str) -> Path:
        return self.folder / f"{stream}.jsonl"


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _last_line(path: Path) -> bytes:
    """The last whole line, with its end; empty where there is none."""
    size = _whole_bytes(path)
    if not size:
        return b""
    with open(path, "rb") as file:
        start = _after_line_before(file.fileno(), size - 1)
        return os.pread(file.fileno(), size - start, start)


def _whole_bytes(path: Path) -> int:
    """Size without half a line at the end, as a writer leaves it that is stopped."""
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        return _after_line_before(file.fileno(), path.stat().st_size)


def _after_line_before(descriptor: int, end: int) -> int:
    """Where the newest line break before `end` is over; 0: there is none."""
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        at = os.pread(descriptor, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0
