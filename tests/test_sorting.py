"""Numpy sorts without AVX-512 on the one processor whose AVX-512 sorts slowly."""

from __future__ import annotations

from pathlib import Path

import pytest

from esper.runtime.sorting import is_zen_4
from tests.cpu_kit import OTHERS, ZEN_4


def test_zen_4_is_told_by_its_family_and_its_instructions(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(ZEN_4)

    assert is_zen_4(tmp_path / "cpuinfo")


@pytest.mark.parametrize("listed", OTHERS.values(), ids=OTHERS)
def test_another_processor_is_no_zen_4(listed: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(listed)

    assert not is_zen_4(tmp_path / "cpuinfo")


def test_a_system_that_lists_no_processors_has_no_zen_4(tmp_path: Path) -> None:
    assert not is_zen_4(tmp_path / "cpuinfo")
