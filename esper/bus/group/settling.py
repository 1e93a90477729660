"""The protocol of a settlement: carried out in one round trip, exactly once, also when the reply to it is lost."""

from __future__ import annotations

from functools import partial
from typing import Any

from esper.bus.group.script import SETTLE, arguments, call, repeated
from esper.bus.group.settlement import RepeatedError, Settlement
from esper.bus.protocol import Ask, RetryPolicy, Steps, pairs_of, until_answered
from esper.errors import BusError, StaleLeaseError


def settle(settlement: Settlement, memory: str, token: str, policy: RetryPolicy) -> Steps[list[str]]:
    """Ids of the messages written, in order. `memory` is a key of one outbox's own, `token` never used before.

    StaleLeaseError: an entry was taken over, nothing was written. RepeatedError: messages took effect before, nothing
    was written. A server that is lost, read-only or out of memory is waited out: the script recognises a settlement
    that went through before its reply was lost.
    """
    keys, argv = arguments(settlement, memory, token)
    reply = yield from until_answered(partial(call, SETTLE, keys, argv), policy)
    match reply[0]:
        case b"ok":
            return [entry_id.decode() for entry_id in reply[1 : 1 + len(settlement.writes)]]
        case b"stale":
            raise StaleLeaseError(*(part.decode(errors="replace") for part in reply[1:3]))
        case b"repeated":
            raise RepeatedError(repeated(settlement, reply[1:]))
    key, found, wanted = (part.decode(errors="replace") for part in reply[1:4])
    raise BusError(f"key {key} holds a {found}; expected a {wanted}")


def recall(hash_key: str, policy: RetryPolicy) -> Steps[dict[bytes, bytes]]:
    """Every field of a record, with the same patience."""
    return pairs_of((yield from until_answered(partial(_fields, hash_key), policy)))


def _fields(hash_key: str) -> Steps[Any]:
    return (yield Ask(("HGETALL", hash_key)))
