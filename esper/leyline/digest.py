"""The digest by which every rank checks that it carries out the very commit that was decided."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence

from esper.leyline import contracts as pb

NONE_YET = hashlib.sha256(b"esper/orders/v1").digest()
"""What orders_digest begins with."""


def barrier_digest(
    effective_step: int, commands: Sequence[pb.CommittedCommand], requests: Sequence[pb.SeedRequest]
) -> bytes:
    """sha256 over the step, then every field of every command and request in order, each length-prefixed."""
    hasher = hashlib.sha256(b"esper/barrier/v1")
    for part in _parts(effective_step, commands, requests):
        hasher.update(struct.pack(">I", len(part)))
        hasher.update(part)
    return hasher.digest()


def orders_digest(before: bytes, commit: pb.BarrierCommit) -> bytes:
    """Of the orders that have led to a state, one more of them carried out: sha256 over that of those before.

    Then come round, effective step, digest of the commit, and whether a snapshot was taken.
    """
    hasher = hashlib.sha256(b"esper/orders/v1" + before)
    hasher.update(struct.pack(">QQ?", commit.round, commit.effective_step, commit.snapshot) + commit.digest)
    return hasher.digest()


def _parts(
    effective_step: int, commands: Sequence[pb.CommittedCommand], requests: Sequence[pb.SeedRequest]
) -> Iterable[bytes]:
    yield struct.pack(">QII", effective_step, len(commands), len(requests))
    for command in commands:
        yield command.stream.encode()
        yield command.entry_id.encode()
        yield command.command_id.encode()
        yield command.envelope_digest
        yield struct.pack(">Q", command.snapshot_step)
    for request in requests:
        yield request.seed_id.encode()
        yield struct.pack(">II", request.operation, request.reason)
        yield request.detail.encode()
