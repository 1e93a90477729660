"""The version of Redis that a server says it is, or is like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

UNKNOWN = "unknown"


def version_of(info: Mapping[str, Any]) -> str:
    """As INFO tells it."""
    return str(info.get("redis_version", "")) or UNKNOWN


def numbers(version: str) -> tuple[int, ...]:
    """Its first two numbers: of 7.0.15, or of 8.0-rc1 from somebody who is like Redis. None, below all, if unknown."""
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", version)[:2])
