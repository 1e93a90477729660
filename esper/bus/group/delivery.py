"""One entry of a stream in the hands of one consumer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

FIELD = b"m"  # the one field of every entry: a sealed message
MAX_ATTEMPTS = 5
# From the third delivery on an entry is handed over alone: one that kills its consumer then takes no neighbour along.
TOGETHER = 2

Entry: TypeAlias = tuple[bytes, dict[bytes, bytes]]
Row: TypeAlias = Sequence[Any]
"""An entry as the server sends it: id, then fields and values in a row, or None where it was deleted."""


class Delivery(NamedTuple):
    """An entry as handed over: `attempts` counts this delivery too. Body is empty where the entry lacks the field."""

    stream: str
    group: str
    entry_id: str
    body: bytes
    attempts: int
    consumer: str = ""

    @property
    def alone(self) -> bool:
        """Whether it failed so often in company that it is handed over without any."""
        return self.attempts > TOGETHER

    @property
    def spent(self) -> bool:
        """Whether it was delivered, and failed, five times before."""
        return self.attempts > MAX_ATTEMPTS


delivered: Callable[[tuple[str, str, str, bytes, int, str]], Delivery] = partial(tuple.__new__, Delivery)
"""A delivery of these six, in half the time that its own call takes."""


def entries_of(reply: Any) -> list[Any]:
    """Entries in a reply of XREAD or XREADGROUP on one stream: RESP2 lists the streams, RESP3 maps them."""
    if not reply:
        return []
    entries = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    return entries if isinstance(entries, list) else list(entries)


def body_of(fields: Sequence[bytes]) -> bytes:
    """The sealed message among fields and values in a row; empty where there is none."""
    if fields[0] == FIELD:
        return fields[1]
    return next((fields[at + 1] for at in range(0, len(fields), 2) if fields[at] == FIELD), b"")
