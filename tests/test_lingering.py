"""A run's folder that goes while the run is kept going: with its user's last login, or by somebody's hand."""

from __future__ import annotations

import asyncio
import os
import pwd
from pathlib import Path

from structlog.testing import capture_logs

from esper.bus.runs import RunRecord
from esper.cli.running.lingering import goes_with_login, told_once_gone


def test_below_the_folder_of_a_login_it_goes_unless_the_user_lingers(tmp_path: Path) -> None:
    logins, lingering = tmp_path / "user", tmp_path / "linger"
    below = logins / str(os.getuid()) / "esper" / "digits-0a1b2c3d"
    assert goes_with_login(below, logins, lingering)

    lingering.mkdir()
    (lingering / pwd.getpwuid(os.getuid()).pw_name).touch()

    assert not goes_with_login(below, logins, lingering)


def test_elsewhere_it_stays(tmp_path: Path) -> None:
    assert not goes_with_login(tmp_path / "esper" / "digits-0a1b2c3d", tmp_path / "user", tmp_path / "linger")


async def test_once_it_is_gone_that_is_said_with_how_to_end_the_run(tmp_path: Path) -> None:
    record = RunRecord("digits-0a1b2c3d", "digits", "unix:///run/redis.sock", tmp_path / "digits-0a1b2c3d")
    record.directory.mkdir()
    with capture_logs() as told:
        telling = asyncio.create_task(told_once_gone(record, 0.0))
        await asyncio.sleep(0)
        assert not told

        record.directory.rmdir()
        await telling

    facts = {"run": record.run_id, "missing": str(record.directory), "how": f"kill {os.getpid()} ends it"}
    assert told == [{"event": "run.unreachable", "log_level": "error", **facts}]
