"""What a wheel would hold: every package, under one top-level name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"esper": "esper", "workers": "esper.workers", "examples": "esper.examples"}


def packaging() -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    return settings


def packages_written() -> set[str]:
    """Dotted name of every folder with an __init__, as it is imported."""
    found = set()
    for folder, prefix in FOLDERS.items():
        for path in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join([prefix, *path.parent.relative_to(ROOT / folder).parts]))
    return found


def test_the_wheel_holds_every_package_of_the_checkout() -> None:
    assert set(packaging()["packages"]) == packages_written()


def test_the_wheel_leaves_one_top_level_name() -> None:
    assert {name.split(".")[0] for name in packaging()["packages"]} == {"esper"}


def test_the_wheel_holds_every_file_that_is_not_code() -> None:
    suffixes = {path.suffix for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()}
    named = {Path(pattern).suffix for pattern in packaging()["package-data"]["*"]}

    assert suffixes - {".py", ".pyc", ""} <= named
