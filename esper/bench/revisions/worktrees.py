"""Revisions of this checkout laid out side by side, each importable as it would be installed."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esper.bench.machine import HERE, git
from esper.errors import SettingError

AS_IT_IS = "."
"""In place of a revision: the files of the checkout, committed or not."""
LINKED = {"workers": "esper/workers", "examples": "esper/examples"}
"""Folders that the wheel has below esper."""


def place_of(name: str) -> str:
    """How an arm's name says it: "at 20c0e47". Raises SettingError where the checkout has no such revision."""
    if name == AS_IT_IS:
        return "as it is"
    try:
        return f"at {git(HERE, 'rev-parse', '--short', '--verify', f'{name}^{{commit}}')}"
    except (OSError, subprocess.SubprocessError) as error:
        raise SettingError("the revision", name, f"one that git knows in {HERE}") from error


@contextmanager
def laid_out(name: str) -> Iterator[Path]:
    """A folder with the files of this revision, to be put into PYTHONPATH; gone with the block."""
    top = Path(git(HERE, "rev-parse", "--show-toplevel"))
    if name == AS_IT_IS:
        with tempfile.TemporaryDirectory(prefix="esper-bench-") as folder:
            yield linked(top, Path(folder))
        return
    with tempfile.TemporaryDirectory(prefix="esper-bench-") as folder:
        tree = Path(folder) / "tree"
        git(top, "worktree", "add", "--detach", str(tree), name)
        try:
            for source, place in LINKED.items():
                if not (tree / place).exists():
                    (tree / place).symlink_to(tree / source)
            yield tree
        finally:
            git(top, "worktree", "remove", "--force", str(tree))


def linked(top: Path, folder: Path) -> Path:
    """The checkout's own files as packages: nothing is copied, and nothing is put into the checkout."""
    package = folder / "esper"
    package.mkdir()
    for path in (top / "esper").iterdir():
        (package / path.name).symlink_to(path)
    for source, place in LINKED.items():
        if not (folder / place).exists():
            (folder / place).symlink_to(top / source)
    return folder
