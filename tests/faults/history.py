"""Append-only logs outside Redis of what each role did; read by the checker alone. Imports nothing of the runtime."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeAlias

Record: TypeAlias = dict[str, Any]


class History:
    """One process's log. A line is one write() with O_APPEND: whole, or not there, whenever the process is killed."""

    def __init__(self, directory: Path, role: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{role}-{os.getpid()}-{time.time_ns()}.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, what: str, **facts: Any) -> None:
        """Write one line: what happened, when by the machine's monotonic clock, and its facts."""
        self.note_all([{"what": what, **facts}])

    def note_all(self, records: list[Record]) -> None:
        """Write several lines in one write()."""
        at_ns = time.monotonic_ns()
        lines = "".join(json.dumps({"at_ns": at_ns, **record}, separators=(",", ":")) + "\n" for record in records)
        data = lines.encode()
        while data:
            data = data[os.write(self._descriptor, data) :]

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def whole_lines(file: IO[bytes]) -> list[bytes]:
    """Those from where the file stands. The last one may be cut short, by a kill or since it is being written now."""
    there = file.read()
    return there[: there.rfind(b"\n") + 1].splitlines(keepends=True)


def records(directory: Path, role: str = "*") -> Iterator[Record]:
    """Every whole line of every log of a role, file by file. A line cut short by a kill at the very end is left out."""
    for path in sorted(directory.glob(f"{role}-*.jsonl")):
        with path.open("rb") as file:
            yield from map(json.loads, whole_lines(file))
