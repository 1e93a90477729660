"""Writes what a command was asked for where `--out` says: into a file, whole, or into a pipe."""

from __future__ import annotations

from pathlib import Path

from esper.leyline.durable import replacing


def place(text: str, path: Path) -> None:
    """In the stead of the file that was there; its folder is made where it isn't there. What is no file is written to
    as it is: a pipe, a terminal. Raises OSError."""
    path = path.resolve()  # in the stead of what a link points to
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    with replacing(path) as file:
        file.write(text.encode())
