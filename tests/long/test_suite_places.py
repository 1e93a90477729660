"""The suite itself, where the environment names places."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ON_A_SERVER = "tests/test_embedded.py::test_it_answers_on_a_private_socket_and_passes_our_own_check"
THAT_COMMITS = "tests/long/test_bench_machine.py::test_a_checkout_is_dirty_once_a_file_of_it_differs"


def passes(test: str, **environment: str) -> None:
    """One test, in a pytest of its own."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    told = os.environ | environment
    done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout


def test_its_servers_have_short_sockets_below_a_deep_temporary_directory(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()

    passes(ON_A_SERVER, TMPDIR=str(deep))


def test_nothing_is_committed_to_the_repository_of_a_hook(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)

    passes(THAT_COMMITS, GIT_DIR=str(tmp_path / ".git"), GIT_INDEX_FILE=str(tmp_path / ".git" / "index"))

    assert not any((tmp_path / ".git" / "refs" / "heads").iterdir())
