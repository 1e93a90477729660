"""A log that can't be written, as on a full disk, ends none of the processes that it tells of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from esper.cli.quiet import log_to

WORKER = """
import structlog
from esper.runtime import logging
from esper.runtime.settings import Settings
logging.configure(Settings(), role="coordinator")
structlog.get_logger().info("epoch.released")
print("goes on")
"""


def test_a_supervisor_outlives_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "up.log").symlink_to("/dev/full")

    with log_to(tmp_path / "up.log"):
        structlog.get_logger().info("process.started", unit="global")


def test_what_is_logged_stands_in_the_file(tmp_path: Path) -> None:
    with log_to(tmp_path / "logs" / "up.log"):
        structlog.get_logger().info("process.started", unit="global")

    assert "process.started" in (tmp_path / "logs" / "up.log").read_text()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_worker_outlives_a_full_disk(unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", WORKER],
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            timeout=60,
        )

    assert (ended.returncode, ended.stdout) == (0, "goes on\n")
