"""A planted bug: one piece of source replaced by another, and the tests that must fail for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COPIED = ("esper", "workers", "examples", "tests", "bench", "proto", "docs", "pyproject.toml", "Makefile", "README.md")
MOST_S = 180.0
HANGS_S = 30  # a test that a bug makes wait for ever has failed by then
FOUND = 1  # pytest's status when tests ran and some failed; any other tells of a broken experiment


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` stands exactly once in `file`; `caught_by` are ids of tests as pytest takes them."""

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]

    def source(self) -> str:
        """The file with the bug in it."""
        text = (ROOT / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.old!r} stands {text.count(self.old)} times in {self.file}; expected 1"
            )
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the named tests said of a mutant."""

    mutant: Mutant
    status: int
    output: str

    @property
    def found(self) -> bool:
        return self.status == FOUND


def plant(mutant: Mutant, place: Path) -> None:
    """Copy the source to `place`, with the bug in it."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
        else:
            shutil.copy(source, place / name)
    for name in ("workers", "examples"):  # what the wheel maps below esper
        (place / "esper" / name).symlink_to(place / name)
    (place / mutant.file).write_text(mutant.source())


def judge(mutant: Mutant, place: Path) -> Verdict:
    """Run the named tests on a copy that holds the bug."""
    plant(mutant, place)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        f"--timeout={HANGS_S}",
        "-p",
        "no:cacheprovider",
        *mutant.caught_by,
    ]
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=MOST_S
        )
    except subprocess.TimeoutExpired:
        return Verdict(mutant, -1, f"no verdict within {MOST_S:g} s")
    return Verdict(mutant, ran.returncode, ran.stdout.decode(errors="replace"))
