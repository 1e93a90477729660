"""Whose keys the checkpoints of a run are signed with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from esper.bus import runs
from esper.errors import SettingError, UnknownRunError
from esper.leyline.kinds import Role
from esper.leyline.rolekeys import RoleKeyring


def keyring_for(run: str, environment: Mapping[str, str]) -> RoleKeyring:
    """The worker's: of ESPER_KEYRING, or of an embedded run. SettingError where there is none."""
    if given := environment.get("ESPER_KEYRING"):
        return RoleKeyring.load(Path(given))
    try:
        return RoleKeyring.load(runs.resolve(run).keyring(Role.WORKER))
    except UnknownRunError as error:
        raise SettingError("checkpoints", run, "a live run, or ESPER_KEYRING: they are signed") from error
