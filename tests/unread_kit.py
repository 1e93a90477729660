"""Commands of which nobody reads what they print."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def without_a_reader() -> Iterator[int]:
    """The end to write to of a pipe whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


def unread(
    arguments: Sequence[str], *, environment: Mapping[str, str], timeout_s: float, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with these; nobody reads its standard output."""
    with without_a_reader() as writing:
        return subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout_s,
        )
