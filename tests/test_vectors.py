"""The published vectors open in an implementation of its own, made of struct, hmac and hashlib from the byte table."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from esper.leyline.keys.keyring import MasterKey, MasterKeyring, Validity
from esper.leyline.kinds import Domain, Role, type_of
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, check_signature

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "docs/vectors.json").read_text())["vectors"]
each_vector = pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])


def expand(secret: bytes, key_id: int, *parts: str) -> bytes:
    """HKDF-SHA256 of RFC 5869; 32 bytes are one block."""
    info = b"".join(len(part.encode()).to_bytes(2, "big") + part.encode() for part in parts)
    extracted = hmac.new(key_id.to_bytes(4, "big"), secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def take_apart(data: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """Header, body and what is before the seal, read from left to right."""
    at = 0

    def take(layout: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(">" + layout, data, at)
        at += struct.calcsize(">" + layout)
        return int(value)

    def take_name() -> str:
        nonlocal at
        length = take("B")
        at += length
        return data[at - length : at].decode()

    assert bytes([take("B"), take("B")]) == b"ES"
    header: dict[str, Any] = {"version": take("B"), "flags": take("B"), "key_id": take("I"), "domain": take("B")}
    header |= {"kind": take("H"), "incarnation": str(take("Q")), "sequence": str(take("Q"))}
    header |= {"issued_at_ns": str(take("Q")), "deadline_kind": take("B"), "deadline": str(take("Q"))}
    header |= {"roster_generation": take("I")}
    header |= {name: take_name() for name in ("run_id", "role", "producer", "target")}
    length = take("I")
    body = data[at : at + length]
    assert len(data) == at + length + (64 if header["flags"] else 0) + 32
    return header, body, data[:-32]


def master_of(vector: dict[str, Any]) -> MasterKeyring:
    validity = Validity(vector["header"]["key_id"], 0, 2**63)
    return MasterKeyring([MasterKey(validity, bytes.fromhex(vector["master_secret"]))])


def test_two_vectors_are_published() -> None:
    assert len(VECTORS) == 2


@each_vector
def test_a_vector_opens_in_a_second_implementation(vector: dict[str, Any]) -> None:
    sealed, named = bytes.fromhex(vector["sealed"]), vector["header"]
    places = ("esper/v1", named["run_id"], named["domain_name"], named["role"])
    key = expand(bytes.fromhex(vector["master_secret"]), named["key_id"], *places)

    header, body, before_seal = take_apart(sealed)

    assert header == {name: value for name, value in named.items() if name != "domain_name"}
    assert body.hex() == vector["body"]
    assert key.hex() == vector["seal_key"]
    assert hmac.new(key, before_seal, hashlib.sha256).digest() == sealed[-32:]


@each_vector
def test_a_vector_opens_here(vector: dict[str, Any]) -> None:
    header, sealed = vector["header"], bytes.fromhex(vector["sealed"])
    keyring = master_of(vector).derive(header["run_id"], [Role.OBSERVER])
    opener = Opener(keyring, name=header["target"], guard=ReplayGuard(), accept=[Domain(header["domain"])])
    issued_ms = int(header["issued_at_ns"]) // 1_000_000

    opened = opener.open(sealed, f"{issued_ms}-0", issued_ms)

    assert opened.message == type_of(header["kind"]).FromString(bytes.fromhex(vector["body"]))
    assert opened.message.DESCRIPTOR.full_name == vector["message"]
    assert opened.digest == hashlib.sha256(sealed).digest()


def test_the_signed_vector_was_signed_by_its_derived_key() -> None:
    vector = next(vector for vector in VECTORS if vector["header"]["flags"] == 1)
    header, sealed = vector["header"], bytes.fromhex(vector["sealed"])
    places = ("esper/v1", header["run_id"], "ed25519", header["role"])
    private = expand(bytes.fromhex(vector["master_secret"]), header["key_id"], *places)

    public = Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()

    assert private.hex() == vector["ed25519_private"]
    assert public.hex() == vector["ed25519_public"]
    Ed25519PublicKey.from_public_bytes(public).verify(sealed[-96:-32], sealed[:-96])
    check_signature(sealed, master_of(vector).derive(header["run_id"], [Role.OBSERVER]))
