"""The suite itself, on a machine that keeps temporary files elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ONE = "tests/test_embedded.py::test_it_answers_on_a_private_socket_and_passes_our_own_check"


def test_its_servers_have_short_sockets_below_a_deep_temporary_directory(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", ONE]

    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "TMPDIR": str(deep)}, capture_output=True, text=True, timeout=150
    )

    assert done.returncode == 0, done.stdout
