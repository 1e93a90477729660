"""What is said to be begun first is there: the name of a file that is gone would order nothing."""

from __future__ import annotations

from pathlib import Path

from tests.system.conftest import LONGEST_FIRST


def test_every_file_that_is_begun_early_is_there_and_named_once() -> None:
    there = {path.name for path in Path(__file__).parent.glob("test_*.py")}

    assert there >= set(LONGEST_FIRST)
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST) > 0
