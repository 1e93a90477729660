"""Whoever waits for a rank that died is told what it said last."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.group_kit import said_by_all


def raises() -> str:
    raise ValueError("no address")


@pytest.mark.parametrize(
    ("dies", "words"),
    [(raises, r"ended with 1:\n(?s:.)*ValueError: no address"), (os.abort, r"ended with -6:\nFatal Python error")],
    ids=["by an error", "by a signal"],
)
def test_a_rank_that_died_is_told_with_its_last_words(dies: Callable[[], str], words: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=f"it died, and {words}"):
        said_by_all([dies, lambda: "well"], tmp_path)


def test_each_rank_says_what_it_returns(tmp_path: Path) -> None:
    assert said_by_all([lambda: "one", lambda: "two"], tmp_path) == ["one", "two"]
