"""Which checkpoints a rollback undid: one signed record beside them, replaced as a whole."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

from esper.errors import CheckpointError
from esper.tolaria.checkpoints.manifest import canonical
from esper.tolaria.checkpoints.signing import Signature, Signer, Verifier

FILE = "undone"
PURPOSE = b"esper/v1 checkpoints undone\0"  # so that a manifest's signature never fits, nor this one a manifest
MOST_BYTES = 2**20
_HEAD = struct.Struct(">Q68s")  # when it was made, and the signature, which covers that time in the text behind


@dataclass(frozen=True, slots=True)
class Undone:
    """Folders that nothing goes back to or resumes from any more."""

    names: frozenset[str] = frozenset()

    def to_bytes(self, signer: Signer, made_ns: int) -> bytes:
        text = canonical({"run_id": signer.run_id, "made_ns": made_ns, "names": sorted(self.names)})
        return _HEAD.pack(made_ns, signer.sign(PURPOSE + text, made_ns).to_bytes()) + text

    @classmethod
    def from_bytes(cls, raw: bytes, verifier: Verifier) -> Undone:
        """Raises CheckpointError unless a holder of the run's key has signed it; nothing unsigned is parsed."""
        if len(raw) < _HEAD.size:
            raise CheckpointError(f"the record of what was undone has {len(raw)} bytes; expected {_HEAD.size} and more")
        made_ns, signature = _HEAD.unpack_from(raw)
        text = raw[_HEAD.size :]
        verifier.check(Signature.from_bytes(signature), PURPOSE + text, made_ns)
        try:
            content = json.loads(text)
            said = content["run_id"], content["made_ns"]
            names = frozenset(map(str, content["names"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"the record of what was undone is not one: {error!r}") from error
        if said != (verifier.run_id, made_ns):
            raise CheckpointError(f"the record of what was undone is of run {said[0]!r}, made at {said[1]} ns")
        return cls(names)
