"""Which runs may be compared: those whose fingerprints have one key."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from esper.bench.history.store import default_folder
from esper.bench.machine import Machine, revision, this_machine
from esper.errors import SettingError
from tests.bench_kit import machine


def test_a_machine_keeps_its_key_over_commits_load_and_what_a_run_has_loaded() -> None:
    here = machine()

    later = replace(here, commit="0" * 40, dirty=True, load_start=9.0, load_end=11.0, threads=here.threads + 1)

    assert later.key == here.key == this_machine(3.0).key
    assert replace(here, memory_bytes=here.memory_bytes + 2**20).key == here.key


@pytest.mark.parametrize(
    "other",
    [
        replace(machine(), cpu="another"),
        replace(machine(), cores=machine().cores + 1),
        replace(machine(), torch="0.1"),
        replace(machine(), python="3.99"),
        replace(machine(), kernel="Linux 0.1"),
        replace(machine(), gpus=("H100",)),
        replace(machine(), pins={"OMP_NUM_THREADS": "7"}),
    ],
)
def test_what_changes_a_figure_changes_the_key(other: Machine) -> None:
    assert other.key != machine().key


def test_a_fingerprint_says_what_it_is_of(tmp_path: Path) -> None:
    here = this_machine(3.0)

    assert here.cpu and here.cores >= 1 and here.memory_bytes > 2**28
    assert here.python == sys.version.split()[0]
    assert here.load_start == 3.0 and here.as_fields()["key"] == here.key
    assert revision(tmp_path) == ("", False)


def test_a_checkout_is_dirty_once_a_file_of_it_differs(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        names = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgSign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *names, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")

    commit, clean = revision(tmp_path)
    (tmp_path / "file").write_text("two")

    assert len(commit) == 40 and clean is False
    assert revision(tmp_path) == (commit, True)


def test_baselines_lie_where_programs_keep_their_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "esper" / "bench"

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert default_folder() == Path("/home/somebody/.local/state/esper/bench")


def test_a_user_without_a_home_is_asked_for_a_folder_of_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # nobody in /etc/passwd

    with pytest.raises(SettingError, match="XDG_STATE_HOME is not set; expected a folder"):
        default_folder()
