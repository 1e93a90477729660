"""Keeps logs from growing without end: what is full is copied aside and emptied, as its writer keeps it open."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

LOOK_S = 5.0


def rotate(log: Path, largest_bytes: int, kept: int) -> bool:
    """Where it has grown past this, move its content to <name>.1, and what is there further on; whether it did.

    Nobody is asked to open it anew. What is written between the copy and the emptying, microseconds, is lost.
    """
    if not log.exists() or log.stat().st_size <= largest_bytes:
        return False
    for number in range(kept - 1, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        if older.exists():
            older.replace(log.with_name(f"{log.name}.{number + 1}"))
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)
    return True


async def kept_short(directory: Path, largest_bytes: int, kept: int, every_s: float = LOOK_S) -> None:
    """Look after all logs of a folder, without end."""
    while True:
        rotated(directory.glob("*.log"), largest_bytes, kept)
        await asyncio.sleep(every_s)


def rotated(logs: Iterable[Path], largest_bytes: int, kept: int) -> list[Path]:
    """Those that were full."""
    return [log for log in logs if rotate(log, largest_bytes, kept)]
