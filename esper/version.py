"""Which release this code is, also where it is not installed."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

__version__ = "0.1.0"
PACKAGES = ("kasmina", "kernels", "leyline", "session", "tolaria")
"""By what these do a run comes to its parameters, and what its ranks say to one another has no number on it."""


@cache
def running() -> str:
    """Esper's version, and the beginning of a digest of the code, which changes where that number does not."""
    return f"Esper {__version__} ({_digest(Path(__file__).parent)[:12]})"


def _digest(root: Path) -> str:
    said = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        content = path.read_bytes()
        said.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return said.hexdigest()
