"""Who signs manifests, as far as a checkpoint is concerned: the keys stay with the wiring."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

from esper.errors import CheckpointError

PURPOSE = b"esper/v1 checkpoint manifest\0"  # so that no signature made for anything else fits a manifest
_PLACE = struct.Struct(">I64s")


@dataclass(frozen=True, slots=True)
class Signature:
    """An Ed25519 signature over PURPOSE and a manifest's bytes, and the id of the key that made it."""

    key_id: int
    ed25519: bytes

    def to_bytes(self) -> bytes:
        return _PLACE.pack(self.key_id, self.ed25519)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Signature:
        """Raises CheckpointError unless there are exactly as many bytes as a signature has."""
        if len(raw) != _PLACE.size:
            raise CheckpointError(f"its signature has {len(raw)} bytes; expected {_PLACE.size}")
        return cls(*_PLACE.unpack(raw))


class Verifier(Protocol):
    """Tells who signed."""

    @property
    def run_id(self) -> str: ...
    def check(self, signature: Signature, message: bytes, made_ns: int) -> None:
        """Raises CheckpointError where the key is unknown, was not valid at `made_ns`, or did not sign this."""


class Signer(Verifier, Protocol):
    """A verifier that also holds a key to sign with."""

    def sign(self, message: bytes, made_ns: int) -> Signature: ...
