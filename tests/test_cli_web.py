"""What `esper web` says before it answers anybody: a bad token, a taken port, no such run; each in one line."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.main import app
from esper.cli.web import PORT
from tests.scripted import ScriptedRun
from tests.web_kit import give_observer


def refused(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    result = CliRunner().invoke(app, ["web", *words])
    assert result.exit_code == 2
    return result.output + capfd.readouterr().err


def test_a_port_that_is_taken_is_said(run: ScriptedRun, capfd: pytest.CaptureFixture[str]) -> None:
    give_observer(run)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(capfd, run.name, "--port", str(port))

    assert f"'127.0.0.1:{port}'" in said and "free" in said


def test_a_name_that_no_machine_can_have_is_said(run: ScriptedRun, capfd: pytest.CaptureFixture[str]) -> None:
    give_observer(run)

    said = refused(capfd, run.name, "--host", "..ä")

    assert "--host, --port is '..ä:8470'" in said


def test_a_short_token_and_a_run_that_is_not_there_are_said(
    run: ScriptedRun, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    give_observer(run)
    path = tmp_path / "token"
    path.write_text("short")
    path.chmod(0o600)

    assert "at least 16" in refused(capfd, run.name, "--token-file", str(path))
    assert "no live run is called 'nosuch'" in refused(capfd, "nosuch")


def test_its_help_has_an_example_and_loopback_is_the_default() -> None:
    result = CliRunner().invoke(app, ["web", "--help"])

    assert result.exit_code == 0
    assert "127.0.0.1" in result.output and str(PORT) in result.output and "$ esper web demo" in result.output
