"""The suite itself, where the environment names places, or a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
ON_A_SERVER = "tests/test_embedded.py::test_it_answers_on_a_private_socket_and_passes_our_own_check"
THAT_COMMITS = "tests/long/test_bench_machine.py::test_a_checkout_is_dirty_once_a_file_of_it_differs"
SHOWN = "tests/long/test_sites_cli.py::test_the_table_says_why_a_site_takes_no_seed"
COLOURED = "tests/long/test_bench_output.py::test_the_table_fits_eighty_columns_and_is_plain_where_there_is_no_terminal"


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


@pytest.mark.parametrize(("test", "variable", "said"), [(SHOWN, "FORCE_COLOR", "1"), (COLOURED, "TERM", "dumb")])
def test_tables_are_as_wide_and_as_coloured_as_a_test_says(test: str, variable: str, said: str) -> None:
    passes(test, **{variable: said})
