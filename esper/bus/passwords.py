"""A file for each Redis user of a run, with its name and its password as variables: made here, and read here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import structlog

from esper.bus.acl import ADMIN, user_name
from esper.bus.client.credentials import PASSWORD, PASSWORD_FILE, USERNAME
from esper.errors import SettingError
from esper.leyline.keys.keyfile import private_text, replace_private

log = structlog.get_logger()
OF_THE_RUN = ("worker", "coordinator", "regional", "global")
"""Roles with users of their own; whoever else looks at a run, or steers it, from its machine is its operator."""


def file_named(folder: Path, name: str) -> Path:
    """As a shell, a systemd unit or Compose reads it. `name`: as Redis knows the user."""
    return folder / f"{name}.env"


def file_of(folder: Path, run_id: str, user: str) -> Path:
    """`user`: as esper.bus.acl.USERS has them, or the administrator."""
    return file_named(folder, ADMIN if user == ADMIN else user_name(run_id, user))


def write(path: Path, name: str, password: str, what: str) -> None:
    """Replace it as a whole; only its owner can read it."""
    replace_private(path, f"{USERNAME}={name}\n{PASSWORD}={password}\n", what)


def variables(path: Path, what: str) -> Mapping[str, str]:
    """The two variables of one user. SettingError: missing, open to others, or something else; `what` led there."""
    text = private_text(path, what)
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    if set(found) != {USERNAME, PASSWORD} or not all(found.values()):
        raise SettingError(what, str(path), f"{USERNAME} and {PASSWORD} alone, a line each, as esper acl writes them")
    return found


def of_role(folder: Path, run_id: str, role: str, what: str) -> Mapping[str, str]:
    """What a process of this role needs, of whoever may read the folder."""
    path = file_of(folder, run_id, role if role in OF_THE_RUN else "operator")
    return {**variables(path, what), PASSWORD_FILE: str(path)}


class Held:
    """One user's variables, read anew at each call, as they may have been replaced; SettingError: at the first one.

    Where the file lies is one of them, for who reads it at each connection.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what
        self._read = variables(path, what)

    def __call__(self) -> Mapping[str, str]:
        """Where they can't be read any more, what was read before: a file that is away ends nobody's training."""
        try:
            self._read = variables(self._path, self._what)
        except SettingError as error:
            log.warning("password.kept", path=str(self._path), why=str(error))
        return {**self._read, PASSWORD_FILE: str(self._path)}
