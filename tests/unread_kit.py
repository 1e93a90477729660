"""Commands of which nobody reads what they print."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def unread(
    arguments: Sequence[str], *, environment: Mapping[str, str], timeout_s: float, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with these; its standard output is a pipe whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout_s,
        )
    finally:
        os.close(writing)
