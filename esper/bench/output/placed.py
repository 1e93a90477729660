"""Writes a file whole: whoever reads it meanwhile, or after a crash, finds what was there before or all of the new."""

from __future__ import annotations

import os
from pathlib import Path


def place(text: str, path: Path) -> None:
    """Beside it first, then in its stead; the folder is made where it isn't there. What is no file is written to as it
    is: a pipe, a terminal. Raises OSError."""
    path = path.resolve()  # in the stead of what a link points to
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
