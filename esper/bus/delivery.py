"""One entry of a stream in the hands of one consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

FIELD = b"m"  # the one field of every entry: a sealed message
MAX_ATTEMPTS = 5

Entry: TypeAlias = tuple[bytes, dict[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """An entry as handed over: `attempts` counts this delivery too. Body is empty where the entry lacks the field."""

    stream: str
    group: str
    entry_id: str
    body: bytes
    attempts: int
    consumer: str = ""

    @property
    def spent(self) -> bool:
        """Whether it was delivered, and failed, five times before."""
        return self.attempts > MAX_ATTEMPTS


def entries_of(reply: Any) -> list[Entry]:
    """Entries in a reply of XREAD or XREADGROUP on one stream."""
    return list(reply[0][1]) if reply else []
