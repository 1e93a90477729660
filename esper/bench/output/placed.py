"""Writes what a command was asked for where `--out` says: into a file, whole, or into a pipe."""

from __future__ import annotations

import os
from pathlib import Path

from esper.errors import SettingError
from esper.leyline.durable import replacing


def place(text: str, path: Path) -> None:
    """In the stead of the file that was there; its folder is made where it isn't there. What is no file is written to
    as it is: a pipe, a terminal. SettingError where it can't be written, and then it is as it was."""
    try:
        Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise SettingError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
