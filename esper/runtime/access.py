"""Settles which run, which Redis and which keys a person means: arguments win over ESPER_ variables."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from esper.bus import runs
from esper.bus.client.credentials import completed
from esper.bus.faults import without_password
from esper.errors import SettingError, listed
from esper.leyline.field_checks import text
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Role
from esper.runtime.keys import kept_current


@dataclass(frozen=True, slots=True)
class Access:
    """One run, as one process reaches it."""

    run_id: str
    redis_url: str
    keyring: RoleKeyring
    keyring_path: Path

    def kept_current(self) -> AbstractAsyncContextManager[None]:
        """While the block runs, the keyring follows its file: keys are rotated without a restart."""
        return kept_current(self.keyring, self.keyring_path)


async def find(
    run: str | None = None,
    redis_url: str | None = None,
    keyring: Path | str | None = None,
    role: Role = Role.CONTROLLER,
) -> Access:
    """Resolve a run's name or id. A run on an outside Redis needs its URL and a keyring; an embedded one, its name.

    `role` says whose keyring is taken from an embedded run's directory.
    """
    for name, given in {"run": run, "redis_url": redis_url, "keyring": keyring}.items():
        if given is not None and not isinstance(given, Path):
            text(name, given)
    run = run or os.environ.get("ESPER_RUN") or launched_run()
    redis_url = redis_url or os.environ.get("ESPER_REDIS_URL") or ""
    keyring = keyring or os.environ.get("ESPER_KEYRING") or ""
    if not run:
        live = listed(record.run_id for record in runs.list_live())
        raise SettingError("run", run, f"the name of a live run, by --run, run= or ESPER_RUN; live runs: {live}")
    if not redis_url:
        record = runs.resolve(run)
        path = Path(keyring or record.keyring(role))
        keys = RoleKeyring.load(path)
        return Access(_agreed(keys, record.run_id, role), record.reach_as(role), keys, path)
    if not keyring:
        why = f"as Redis is one of your own, {without_password(redis_url)}"
        raise SettingError("keyring", keyring, f"the path of a role keyring in ESPER_KEYRING, {why}")
    path, redis_url = Path(keyring), completed(redis_url, os.environ)
    keys = RoleKeyring.load(path)
    run_id = keys.run_id if run == keys.run_id else await runs.resolve_outside(redis_url, run)
    return Access(_agreed(keys, run_id, role), redis_url, keys, path)


def launched_run() -> str:
    """What torchrun was told to call itself, as all its ranks are told; empty without it, or where nobody said."""
    told = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return "" if told == "none" else told


def _agreed(keys: RoleKeyring, run_id: str, role: Role) -> str:
    if keys.run_id != run_id:
        raise SettingError("keyring", f"for run {keys.run_id}", f"one for run {run_id}")
    if role not in keys.roles and role is not Role.CONTROLLER:  # a client that only reads may come with any keyring
        raise SettingError("keyring", f"for {', '.join(keys.roles)}", f"one for {role.value}")
    return run_id
