"""The order of entry ids."""

from __future__ import annotations

HIGHEST_SEQUENCE = 2**64 - 1


def id_order(entry_id: str) -> tuple[int, int]:
    """Entry ids as the server orders them."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def before(entry_id: str) -> str:
    """The highest id below one."""
    milliseconds, sequence = id_order(entry_id)
    return f"{milliseconds}-{sequence - 1}" if sequence else f"{max(0, milliseconds - 1)}-{HIGHEST_SEQUENCE}"
