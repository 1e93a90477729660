"""Numpy sorts without AVX-512 on the one processor whose AVX-512 sorts slowly."""

from __future__ import annotations

from pathlib import Path

import pytest

from esper.runtime.sorting import is_zen_4

LISTED = """processor\t: 0
vendor_id\t: {vendor}
cpu family\t: {family}
model name\t: some {vendor} of family 25
flags\t\t: fpu avx2 {flags}

processor\t: 1
vendor_id\t: AuthenticAMD
cpu family\t: 25
flags\t\t: avx512f
"""
ZEN_4 = LISTED.format(vendor="AuthenticAMD", family=25, flags="avx512f avx512bw")
OTHERS = {
    "zen 3": LISTED.format(vendor="AuthenticAMD", family=25, flags="sse4a"),
    "zen 5": LISTED.format(vendor="AuthenticAMD", family=26, flags="avx512f avx512bw"),
    "intel": LISTED.format(vendor="GenuineIntel", family=25, flags="avx512f avx512bw"),
    "arm": "processor\t: 0\nCPU implementer\t: 0x41\n",
}


def test_zen_4_is_told_by_its_family_and_its_instructions(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(ZEN_4)

    assert is_zen_4(tmp_path / "cpuinfo")


@pytest.mark.parametrize("listed", OTHERS.values(), ids=OTHERS)
def test_another_processor_is_no_zen_4(listed: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(listed)

    assert not is_zen_4(tmp_path / "cpuinfo")


def test_a_system_that_lists_no_processors_has_no_zen_4(tmp_path: Path) -> None:
    assert not is_zen_4(tmp_path / "cpuinfo")
