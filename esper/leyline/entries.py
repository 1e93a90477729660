"""Ids of the entries of a stream: the server's milliseconds, and a count within each."""

from __future__ import annotations

HIGHEST = 2**64 - 1
LAST_ID = f"{HIGHEST}-{HIGHEST}"
"""The last one there is: behind an entry that has it a server adds no other."""


def entry_order(entry_id: str) -> tuple[int, int]:
    """As the server orders them; empty text stands before every entry. ValueError: it is no id."""
    milliseconds, _, count = entry_id.partition("-")
    return int(milliseconds or 0), int(count or 0)


def before(entry_id: str) -> str:
    """The highest id below one."""
    milliseconds, count = entry_order(entry_id)
    return f"{milliseconds}-{count - 1}" if count else f"{max(0, milliseconds - 1)}-{HIGHEST}"


def entry_ms(entry_id: str) -> int:
    """When the entry was added, by the server's clock."""
    return entry_order(entry_id)[0]
