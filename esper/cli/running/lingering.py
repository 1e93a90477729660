"""How long the folder of live runs stays: one that logind made goes with its user's last login, unless he lingers."""

from __future__ import annotations

import asyncio
import os
import pwd
from contextlib import suppress
from pathlib import Path

import structlog

from esper.bus.runs import RunRecord

LOOK_S = 1.0

log = structlog.get_logger()


def goes_with_login(
    directory: Path, logins: Path = Path("/run/user"), lingering: Path = Path("/var/lib/systemd/linger")
) -> bool:
    """Whether systemd-logind takes it away once its user is logged in no more, with whatever lies below."""
    if not directory.is_relative_to(logins / str(os.getuid())):
        return False
    with suppress(KeyError):  # a user without a name can't be told to linger
        return not (lingering / pwd.getpwuid(os.getuid()).pw_name).exists()
    return True


async def told_once_gone(record: RunRecord, look_s: float = LOOK_S) -> None:
    """Say so once the folder is not there any more: who lives goes on, but nobody finds a way to Redis again."""
    while record.directory.exists():
        await asyncio.sleep(look_s)
    how = f"kill {os.getpid()} ends it"
    log.error("run.unreachable", run=record.run_id, missing=str(record.directory), how=how)
