"""A disk that fails in the middle of a checkpoint: the one before it loads, the failure is told, training goes on."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library through which the nth write or fsync fails."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("a call that fails is compiled, and there is no C compiler here")
    library = tmp_path_factory.mktemp("library") / "failing_calls.so"
    source = ROOT / "tests" / "failing_calls.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=150)
    return library


def test_whichever_call_fails_the_checkpoint_before_it_loads_and_training_goes_on(
    preloaded: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.disk_errors", str(tmp_path / "kept"), str(errno.EIO)],
        env=os.environ | {"LD_PRELOAD": str(preloaded), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    met = json.loads(done.stdout.splitlines()[-1])
    assert met["write"] >= 4 and met["fsync"] >= 6  # three files and `latest`; these, and both folders
    assert met["told"] == met["failed"] == met["write"] + met["fsync"] + 1  # the record of what was undone
