"""JSON lines: one aggregate a line, in a file that is set aside at a size; its last line says how far it has come."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.leyline.durable import sync_folder
from esper.runtime.exporters.loop import NOTHING, Entry

MOST_BYTES = 64 << 20
NUM_KEPT = 10
TAIL_BYTES = 1 << 20
FIRST = b'{"entry_id": "'


class JsonLines:
    """Appends. Each batch is fsynced before the next is read; what was torn at the end by a crash is cut off.

    `path` is set aside as path.1 once it is larger than `most_bytes`, path.1 as path.2, and so on; the oldest of more
    than `num_kept` goes. Whoever opens it holds `files.held` on the path.
    """

    def __init__(
        self, path: Path, record: Callable[[pb.AggregatedTelemetry], Mapping[str, Any]], most_bytes: int, num_kept: int
    ) -> None:
        self.path, self.most_bytes, self.num_kept = path, most_bytes, num_kept
        self._record = record
        self.position, self.sequence = NOTHING, 0
        for each in (path, self._aside(1)):
            if each.exists() and (last := last_line(each)) is not None:
                self.position, self.sequence = last["entry_id"], last["sequence"]
                break

    async def write(self, entries: Sequence[Entry]) -> None:
        """Append a line each, and have them on disk."""
        lines = [json.dumps({"entry_id": each.entry_id, **self._record(each.aggregate)}) for each in entries]
        with self.path.open("ab") as file:
            file.write(("\n".join(lines) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        self.position, self.sequence = entries[-1].entry_id, entries[-1].aggregate.sequence
        if size >= self.most_bytes:
            self._rotate()

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _rotate(self) -> None:
        """From the oldest on, so that a crash in between leaves none overwritten."""
        first_free = next(number for number in range(1, self.num_kept + 2) if not self._room(number))
        for number in range(first_free, 1, -1):
            self._aside(number - 1).rename(self._aside(number))
        self.path.rename(self._aside(1))
        self._aside(self.num_kept + 1).unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def _room(self, number: int) -> bool:
        """Whether this number is taken, and not yet the one that goes."""
        return number <= self.num_kept and self._aside(number).exists()


def last_line(path: Path) -> dict[str, Any] | None:
    """The last line that is whole; what follows it is cut off. None: not even the first one is.

    SettingError for a file that holds something else: it is left as it is.
    """
    with path.open("r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
        file.seek(start)
        tail = file.read()
        begins = not start and FIRST.startswith(tail[: len(FIRST)])
        while end := tail.rfind(b"\n") + 1:
            tail = tail[:end]
            line_at = tail.rfind(b"\n", 0, end - 1) + 1
            if (found := _parsed(tail[line_at:])) is not None:
                file.truncate(start + end)
                return found
            tail = tail[:line_at]
        if not begins:
            raise SettingError("path", str(path), "a file of JSON lines that an exporter wrote, or none")
        file.truncate(0)
        return None


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and {"entry_id", "sequence"} <= found.keys() else None
