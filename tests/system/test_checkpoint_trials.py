"""Writers of checkpoints that are killed, full disks, and a whole session that goes on from one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SHORT = ("--quick", "--json", "--seed", "5")
ON_A_FULL_DISK = """
import sys
from pathlib import Path
import torch
from esper.errors import CheckpointError
from tests.checkpoint_kit import put, store_at

store = store_at(Path(sys.argv[1]), keep=9)
made = [put(store, 1)]
try:
    while True:
        made.append(put(store, len(made) + 1, {"w": torch.zeros(50_000)}))
except CheckpointError as error:
    assert "No space left on device" in str(error), error
assert store.newest()[0] == made[-1]
assert len(store.paths()) == len(made) > 1
print("refused after", len(made))
"""


def test_no_kill_flip_or_forgery_breaks_a_promise() -> None:
    memory = Path("/dev/shm")  # what is fsynced there is there at once
    environment = os.environ | ({"TMPDIR": str(memory)} if os.access(memory, os.W_OK) else {})
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "checkpoints.py", *SHORT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    figures = [figure for figure in map(json.loads, done.stdout.splitlines()) if figure["unit"] == "trials"]
    met = {(figure["row"], figure["arm"]): figure["value"] for figure in figures}
    assert {figure["row"]: figure["n"] for figure in figures} == {
        "checkpoints-kills": 20,
        "checkpoints-flips": 200,
        "checkpoints-forgeries": 40,
        "checkpoints-rollbacks": 6,
    }
    assert met["checkpoints-rollbacks", "trials"] == 6
    assert met["checkpoints-kills", "in the middle of a write"] > 0


def test_a_disk_without_space_refuses_the_next_and_keeps_the_last(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("a small disk needs a mount of our own, and there is no unshare here")
    small = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    arguments = [str(tmp_path), sys.executable, ON_A_FULL_DISK]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", small, "sh", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount of our own here: {done.stderr.strip()}")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused after")
