"""What numpy was loaded with, in interpreters that load it for the first time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from esper.runtime.sorting import AVX_512, SWITCH
from tests.cpu_kit import OTHERS, ZEN_4

FOUND = f"""
import json, os, sys
from functools import partial
from pathlib import Path
from esper.runtime import sorting
sorting.load_numpy = partial(sorting.load_numpy, Path(sys.argv[1]))
exec(sys.argv[2])
import numpy
core = getattr(numpy, "_core", None) or numpy.core
features = core._multiarray_umath.__cpu_features__
print(json.dumps([os.environ.get({SWITCH!r}), bool(features.get({AVX_512!r}))]))
"""


def loaded(
    tmp_path: Path, listed: str, statement: str = "sorting.load_numpy()", **environment: str
) -> tuple[str | None, bool]:
    """The switch after this was run beside such a processor, and whether numpy goes by AVX-512."""
    (tmp_path / "cpuinfo").write_text(listed)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", FOUND, str(tmp_path / "cpuinfo"), statement],
        env={**{name: value for name, value in os.environ.items() if name != SWITCH}, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    switch, goes_by_it = json.loads(ran.stdout)
    return switch, goes_by_it


@pytest.fixture(autouse=True)
def has_avx_512(tmp_path: Path) -> None:
    if not loaded(tmp_path, OTHERS["intel"])[1]:
        pytest.skip("this processor has no AVX-512, or numpy calls it by another name")


def test_on_zen_4_numpy_goes_without_avx_512_and_its_switch_is_taken_back(tmp_path: Path) -> None:
    assert loaded(tmp_path, ZEN_4) == (None, False)


def test_a_switch_that_is_set_is_left_alone(tmp_path: Path) -> None:
    assert loaded(tmp_path, ZEN_4, **{SWITCH: ""}) == ("", True)


def test_the_first_tier_loads_numpy_so(tmp_path: Path) -> None:
    assert loaded(tmp_path, ZEN_4, "import workers.regional") == (None, False)


def test_beside_a_numpy_that_can_not_do_without_it_the_process_begins_anew(tmp_path: Path) -> None:
    needed = "sorting.AVX_512 = 'X86_V2'; sorting.load_numpy()"  # which every numpy since 2.4 is built for

    assert loaded(tmp_path, ZEN_4, needed) == ("", True)
