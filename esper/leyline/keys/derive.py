"""How the keys of a run come from a master secret: HKDF-SHA256, one key per domain and sealing role."""

from __future__ import annotations

import struct

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl.signing import SigningKey

from esper.leyline.kinds import Domain, Role

KEY_BYTES = 32
_PROTOCOL = "esper/v1"
_SIGNING = "ed25519"


def seal_key(secret: bytes, key_id: int, run_id: str, domain: Domain, role: Role) -> bytes:
    """The HMAC key of what `role` seals in `domain` during one run."""
    return _expand(secret, key_id, (_PROTOCOL, run_id, domain.name.lower(), role.value))


def signing_key(secret: bytes, key_id: int, run_id: str, role: Role) -> SigningKey:
    """The Ed25519 key of a role during one run. Holders of HMAC keys can't compute it."""
    return SigningKey(_expand(secret, key_id, (_PROTOCOL, run_id, _SIGNING, role.value)))


def _expand(secret: bytes, key_id: int, parts: tuple[str, ...]) -> bytes:
    info = b"".join(struct.pack(">H", len(part.encode())) + part.encode() for part in parts)
    return HKDF(SHA256(), KEY_BYTES, struct.pack(">I", key_id), info).derive(secret)
