"""Where the log lines of measured code go."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import structlog

from esper.bench.runner import run
from tests.bench_kit import BRIEF, arm, row


@pytest.fixture(autouse=True)
def _as_in_a_new_process() -> Iterator[None]:
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


def say() -> None:
    structlog.get_logger().info("checkpoint.made")
    structlog.get_logger().warning("seed.culled")


def test_warnings_of_an_arm_go_to_stderr_and_lesser_lines_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    run([row(arm("ours", say))], BRIEF)

    said = capsys.readouterr()
    assert "seed.culled" in said.err and said.out == ""
    assert "checkpoint.made" not in said.err
    assert not structlog.is_configured()


def test_who_has_said_where_they_go_has_them_there(capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file))

    run([row(arm("ours", say))], BRIEF)

    said = capsys.readouterr()
    assert "seed.culled" in file.getvalue() and said.out == said.err == ""
    assert structlog.is_configured()
