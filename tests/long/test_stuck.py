"""A test that no alarm reaches is named, and the tests after it run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stuck import timeout_s

ROOT = Path(__file__).resolve().parent.parent.parent
PLUGINS = ("-p", "tests.stuck", "-p", "xdist", "-p", "pytest_timeout")
UNINTERRUPTED = """
import signal
import time
import pytest

@pytest.mark.timeout(1)
def test_hears_no_alarm():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(60)

def test_another():
    pass
"""


def test_a_test_that_hears_no_alarm_is_named_with_its_stack_and_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 60\n")
    (tmp_path / "test_two.py").write_text(UNINTERRUPTED)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, "--stuck-s=0.5", "-n", "1", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert done.returncode == 1
    assert "in test_hears_no_alarm" in done.stderr
    assert "crashed while running 'test_two.py::test_hears_no_alarm'" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


@pytest.mark.timeout(77)
def test_a_test_has_the_time_of_its_own_mark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request.config.option, "timeout", 5.0)

    assert timeout_s(request.node) == 77.0


def test_else_it_has_what_was_asked_for_here_or_in_the_environment_or_without_a_limit(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    monkeypatch.setenv("PYTEST_TIMEOUT", "600")
    for option in (5.0, 0.0, None):
        monkeypatch.setattr(request.config.option, "timeout", option)
        found.append(timeout_s(request.node))

    assert found == [5.0, 0.0, 600.0]
