"""Loads numpy so that it sorts by the instructions that the processor at hand is fast at."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

SWITCH = "NPY_DISABLE_CPU_FEATURES"
AVX_512 = "X86_V4"
"""As numpy calls it since 2.4. An older one knows no such name, which it warns of, and sorts as it did."""
PROCESSORS = Path("/proc/cpuinfo")


def load_numpy(processors: Path = PROCESSORS) -> None:
    """To be called before anything imports numpy, which looks at its switch once. One that is set is left alone.

    Beside a numpy that can't do without AVX-512 the process begins anew, with the switch set to nothing.

    On Zen 4 to pack a vector into memory takes a hundred cycles, and numpy's AVX-512 sort does little else: 24 ns a
    double where its AVX2 sort takes 5 (rows of 8,192). Sums take as long with either.
    """
    if SWITCH in os.environ or not is_zen_4(processors):
        return
    os.environ[SWITCH] = AVX_512
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)
            import_module("numpy")
    except RuntimeError:  # built for no less than AVX-512; it can be loaded once in a process
        os.environ[SWITCH] = ""
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    finally:
        del os.environ[SWITCH]


def is_zen_4(processors: Path) -> bool:
    """Whether the first processor listed is AMD's of family 25 with AVX-512, which Zen 3 lacks and Zen 5 is past."""
    try:
        listed = processors.read_text().partition("\n\n")[0]
    except OSError:
        return False
    said = {name.strip(): value.split() for name, _, value in (line.partition(":") for line in listed.splitlines())}
    is_family = said.get("vendor_id") == ["AuthenticAMD"] and said.get("cpu family") == ["25"]
    return is_family and "avx512f" in said.get("flags", ())
