"""The protocol of a publish: one XADD, and its retry rule."""

from __future__ import annotations

from functools import partial

from esper.bus.delivery import FIELD
from esper.bus.protocol import Ask, Patience, Steps, until_answered


def publish(stream: str, sealed: bytes, patience: Patience) -> Steps[str]:
    """Id of the entry. Within patience the same bytes are added again where the reply was lost: one of two entries
    then takes effect, as readers know a message by its producer and sequence. Without patience nothing is repeated."""
    entry_id: bytes = yield from until_answered(partial(_add, stream, sealed), patience)
    return entry_id.decode()


def _add(stream: str, sealed: bytes) -> Steps[bytes]:
    reply: bytes = yield Ask(("XADD", stream, "*", FIELD, sealed))
    return reply
