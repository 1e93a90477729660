"""Between entry ids."""

from __future__ import annotations

from esper.leyline.entries import entry_order

HIGHEST_SEQUENCE = 2**64 - 1


def before(entry_id: str) -> str:
    """The highest id below one."""
    milliseconds, sequence = entry_order(entry_id)
    return f"{milliseconds}-{sequence - 1}" if sequence else f"{max(0, milliseconds - 1)}-{HIGHEST_SEQUENCE}"
