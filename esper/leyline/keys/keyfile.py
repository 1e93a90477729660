"""Files that hold keys: written aside with mode 0600, refused when anybody else can read them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from esper.errors import SettingError
from esper.leyline.durable import replacing

KINDS = ("master", "role")


def read_private(path: Path, *kinds: str) -> dict[str, Any]:
    """The JSON object of a key file; `kinds` are what its field `esper_keyring` may say; none: either."""
    return _parse(path, private_text(path, "keyring"), kinds or KINDS)


def private_text(path: Path, what: str) -> str:
    """What a secret's file says. SettingError: missing, not text, or open to others; `what` led there."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingError(what, str(path), f"a readable file of text ({why})") from error
    if mode & 0o077:
        raise SettingError(what, str(path), f"a file that only its owner can read (mode 0600, not {mode:04o})")
    return text


def replace_private(path: Path, text: str, what: str = "keyring") -> None:
    """Replace the file as a whole; only its owner can read it."""
    replace_whole(path, text, what, 0o600)


def replace_whole(path: Path, text: str, what: str, mode: int, like: os.stat_result | None = None) -> None:
    """A reader meets the old file or the new one, a crash leaves either; after this the new one, also a power cut.

    `like`: has its owner and mode instead.
    """
    try:
        with replacing(path, mode) as file:
            if like is not None:
                os.fchown(file.fileno(), like.st_uid, like.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
            file.write(text.encode())
    except OSError as error:
        raise SettingError(what, str(path), f"a place to write ({error.strerror})") from error


def write_private(path: Path, content: dict[str, Any]) -> None:
    """The same, of a JSON object."""
    replace_private(path, json.dumps(content, indent=1))


def _parse(path: Path, text: str, kinds: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise SettingError("keyring", str(path), "a JSON file") from error
    if not isinstance(content, dict) or content.get("esper_keyring") not in kinds or content.get("version") != 1:
        raise SettingError("keyring", str(path), f"a {' or '.join(kinds)} keyring of version 1")
    return content
