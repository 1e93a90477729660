"""Writes what a command was asked for where `--out` says: into a file, whole, or into a pipe."""

from __future__ import annotations

from pathlib import Path

from esper.errors import SettingError
from esper.leyline.durable import replacing


def place(text: str, path: Path) -> None:
    """In the stead of the file that was there; its folder is made where it isn't there. What is no file is written to
    as it is: a pipe, a terminal. SettingError where it can't be written, and then it is as it was."""
    at = path.resolve() if path.is_file() or not path.exists() else path  # in the stead of what a link points to
    try:
        at.parent.mkdir(parents=True, exist_ok=True)
        with replacing(at) as file:
            file.write(text.encode())
    except OSError as error:
        raise SettingError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
