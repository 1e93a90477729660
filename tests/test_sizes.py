"""What must stay readable at one sitting stays short."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def num_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("path", sorted((ROOT / "workers").glob("*.py")), ids=lambda path: path.name)
def test_a_process_is_wired_in_sixty_lines(path: Path) -> None:
    assert num_lines(path) <= 60


def test_the_controller_script_fits_on_one_screen() -> None:
    assert num_lines(ROOT / "examples" / "grow_digits.py") <= 80


@pytest.mark.parametrize("folder", ["esper", "workers", "examples", "bench", "scripts", "tests"])
def test_no_file_is_longer_than_350_lines(folder: str) -> None:
    written = (path for path in (ROOT / folder).rglob("*.py") if not path.stem.endswith("_pb2"))

    assert [str(path.relative_to(ROOT)) for path in written if num_lines(path) > 350] == []


def test_no_folder_of_the_package_holds_more_than_forty_modules() -> None:
    held = Counter(path.parent for path in (ROOT / "esper").rglob("*.py") if path.stem != "__init__")

    assert {str(folder.relative_to(ROOT)): num for folder, num in held.items() if num > 40} == {}
