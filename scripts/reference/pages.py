"""Which pages are made, and by what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scripts.reference import commands, protocol, settings

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": commands.page,
    "protocol.md": protocol.page,
    "settings.md": settings.page,
}
"""File below docs/: its text."""
