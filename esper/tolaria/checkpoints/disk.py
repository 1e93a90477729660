"""Folders that are there whole or not at all, whenever the machine or the process stops."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from esper.errors import CheckpointError
from esper.leyline.durable import sync_folder

ASIDE = ".aside-"


def put_folder(parent: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """Make the folder `name` with these files. Raises CheckpointError, with nothing left behind, where that fails."""
    aside, whole = parent / f"{ASIDE}{secrets.token_hex(4)}", parent / name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        aside.mkdir()
        for each, content in files.items():
            _put(aside / each, content)
        sync_folder(aside)
        aside.rename(whole)
        sync_folder(parent)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        drop_folder(whole)  # where it was only the renaming that could not be made durable
        raise CheckpointError(f"it can't be written: {error.strerror}", str(whole)) from error
    return whole


def put_file(path: Path, content: bytes) -> None:
    """Replace the file as a whole: a reader meets the old one or the new one."""
    aside = path.with_name(f"{ASIDE}{secrets.token_hex(4)}")
    try:
        _put(aside, content)
        aside.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise CheckpointError(f"it can't be written: {error.strerror}", str(path)) from error


def read_file(path: Path, most: int) -> bytes:
    """All bytes; CheckpointError where it can't be read, is no plain file, or has more than `most`."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            met = os.fstat(file.fileno())
            if not stat.S_ISREG(met.st_mode) or met.st_size > most:
                raise CheckpointError(f"{path.name} is no plain file of at most {most} bytes")
            return file.read()
    except OSError as error:
        raise CheckpointError(f"{path.name} can't be read: {error.strerror}") from error


def _at_once(path: str, flags: int) -> int:
    """Through no link; a pipe must not keep us waiting."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def drop_folder(path: Path) -> None:
    """Out of sight first, so that a stop in between leaves nothing half a folder."""
    aside = path.with_name(f"{ASIDE}{secrets.token_hex(4)}")
    try:
        path.rename(aside)
    except OSError:
        return
    shutil.rmtree(aside, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Delete what writers left that were stopped half-way."""
    for left in parent.glob(f"{ASIDE}*"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _put(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb", buffering=0) as file:
        view = memoryview(content)
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())
