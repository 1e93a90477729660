"""Whose keys the checkpoints of a run are signed with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from esper.bus import runs
from esper.errors import SettingError, UnknownRunError
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.runtime.keys import KeyFile


def keyring_for(run: str, environment: Mapping[str, str]) -> RoleKeyring:
    """The worker's: of ESPER_KEYRING, or of an embedded run. SettingError where there is none."""
    return RoleKeyring.load(_place(run, environment))


def key_file_for(run: str, environment: Mapping[str, str]) -> KeyFile:
    """The same for who lives for long: keys are rotated and retired meanwhile."""
    path = _place(run, environment)
    return KeyFile(RoleKeyring.load(path), path)


def _place(run: str, environment: Mapping[str, str]) -> Path:
    if given := environment.get("ESPER_KEYRING"):
        return Path(given)
    try:
        return runs.resolve(run).keyring(Role.WORKER)
    except UnknownRunError as error:
        raise SettingError("checkpoints", run, "a live run, or ESPER_KEYRING: they are signed") from error
