"""What a run leaves behind on a Redis of its own, or outside, when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from esper.bus import runs
from esper.cli.fleet import fleet, keep_log
from esper.runtime.runfile import parse
from tests.bus_kit import own_server

FILE = """
name = "fleet"
redis = "{url}"
runs_dir = "{runs}"
trainer.count = 0
"""


async def test_a_run_ends_in_order_also_where_its_outside_redis_is_gone_by_then(
    short_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    with own_server(short_directory) as server:
        read = parse(FILE.format(url=server.url, runs=tmp_path / "runs"), "run.toml")

        with capture_logs() as events:
            async with fleet(read) as run:
                server.kill()

    assert [event["event"] for event in events if event["log_level"] == "warning"] == [
        "log.not_kept",
        "run.not_taken_off",
    ]
    assert run.record not in runs.list_live()


async def test_a_run_whose_password_is_gone_by_its_end_says_that_its_log_is_not_kept(tmp_path: Path) -> None:
    record = runs.RunRecord("fleet-0a1b2c3d", "fleet", "redis://there:1", tmp_path, passwords=str(tmp_path / "gone"))

    with capture_logs() as events:
        await keep_log(record, tmp_path)

    [event] = events
    assert event["event"] == "log.not_kept" and "fleet-0a1b2c3d-operator.env" in event["why"]
