"""What the pages state, of envelopes by their bytes: for judges, who take no word of the runtime for it.

Imports nothing of the runtime.
"""

from __future__ import annotations

FRESH_S = 60  # older than that by its entry's time, a message is stale
EVERYSEC_WINDOW_S = 2.0  # of what was acknowledged, that fast mode may lose with the power


def key_id_of(sealed: bytes) -> int:
    """Which key it says that it was sealed with."""
    return int.from_bytes(sealed[4:8], "big")


def issued_ms(sealed: bytes) -> int:
    """When it says that it was sealed."""
    return int.from_bytes(sealed[27:35], "big") // 1_000_000


def added_ms(entry_id: str) -> int:
    """When an entry was added, by its stream."""
    return int(entry_id.partition("-")[0])
