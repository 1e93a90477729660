"""The model of this machine's processor."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """As Linux names it; of two that know the same instructions a library may still tell one apart."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
