"""Keeps logs from growing without end: what is full is copied aside and emptied, as its writer keeps it open."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import structlog

LOOK_S = 5.0

logger = structlog.get_logger()


def rotate(log: Path, largest_bytes: int, kept: int) -> bool:
    """Where it has grown past this, move its content to <name>.1, and what is there further on; whether it did.

    Nobody is asked to open it anew. What is written between the copy and the emptying, microseconds, is lost; in a
    crash nothing is, though the newest lines may then be put aside twice. OSError: it can't be put aside, as where the
    disk is full; all is as it was.
    """
    if not log.exists() or log.stat().st_size <= largest_bytes:
        return False
    copy, newest = (log.with_name(f"{log.name}.{which}") for which in ("new", "1"))
    try:
        shutil.copyfile(log, copy)
    except OSError:
        copy.unlink(missing_ok=True)
        raise
    for number in range(kept - 1, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        if older.exists():
            older.replace(log.with_name(f"{log.name}.{number + 1}"))
    copy.replace(newest)
    with log.open("rb") as source, newest.open("ab") as target:  # what was written meanwhile
        source.seek(target.tell())
        shutil.copyfileobj(source, target)
    os.truncate(log, 0)
    return True


async def kept_short(directory: Path, largest_bytes: int, kept: int, every_s: float = LOOK_S) -> None:
    """Look after all logs of a folder, without end. One that can't be put aside is tried again at the next look."""
    while True:
        for log in found(directory):
            try:
                await asyncio.to_thread(rotate, log, largest_bytes, kept)  # 512 MiB take 0.3 s
            except OSError as error:
                logger.warning("log.not_rotated", path=str(log), why=str(error))
        await asyncio.sleep(every_s)


def found(directory: Path) -> list[Path]:
    """Its logs; none where they can't be listed, as without a descriptor to do so."""
    try:
        return list(directory.glob("*.log"))
    except OSError as error:
        logger.warning("logs.not_listed", path=str(directory), why=str(error))
        return []
