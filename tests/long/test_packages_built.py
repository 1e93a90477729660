"""What is built of the checkout: a source archive, and a wheel made from what lies in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ("esper", "workers", "examples", "proto", "pyproject.toml", "setup.py", "README.md", "MANIFEST.in")
MADE_BY_SETUPTOOLS = {"PKG-INFO", "setup.cfg", "esper.egg-info"}


def build(kind: str, folder: Path) -> str:
    """By the backend that pyproject.toml names, within a folder; what it printed."""
    script = f"from setuptools.build_meta import build_{kind} as build; build('out')"
    command = [sys.executable, "-W", "default", "-c", script]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=150)
    return done.stdout + done.stderr


def held(folder: Path) -> set[str]:
    """Names of the files in the wheel that was built last."""
    with zipfile.ZipFile(next((folder / "out").glob("*.whl"))) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of a copy of the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    for path in map(ROOT.joinpath, PARTS):
        if path.is_dir():
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.exists():
            shutil.copy(path, copy)
    (copy / "tests").mkdir()
    shutil.copy(Path(__file__), copy / "tests")
    build("sdist", copy)
    return next((copy / "out").glob("*.tar.gz"))


@pytest.fixture
def archive(packed: Path, tmp_path: Path) -> Path:
    """The same unpacked, for one test: building leaves folders in it."""
    with tarfile.open(packed) as files:
        files.extractall(tmp_path, filter="data")
    return next(tmp_path.iterdir())


def test_the_source_archive_holds_the_wire_s_definitions_and_no_half_of_the_tests(archive: Path) -> None:
    assert {path.name for path in archive.iterdir()} == {*PARTS, *MADE_BY_SETUPTOOLS}


def test_a_wheel_of_the_archive_is_built_without_doubts_about_its_packages(archive: Path) -> None:
    told = build("wheel", archive)

    assert "absent from the `packages`" not in told
    ours = {path.relative_to(archive).as_posix() for path in (archive / "esper").rglob("*") if path.is_file()}
    assert ours - held(archive) == set()


def test_a_wheel_holds_nothing_that_an_earlier_build_left(archive: Path) -> None:
    build("wheel", archive)
    left = archive / "build" / "lib" / "esper" / "kasmina" / "deleted_since.py"
    assert left.parent.is_dir()
    left.touch()

    build("wheel", archive)

    assert "esper/__init__.py" in held(archive)
    assert "esper/kasmina/deleted_since.py" not in held(archive)
