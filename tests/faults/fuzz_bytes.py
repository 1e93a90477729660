"""What somebody without any key can do: harm bytes, mix them, make them up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from tests.faults.forge import Forge
from tests.faults.fuzz_case import Case, Class, Make, entry

# Where the parts of the header lie; those behind it are found by their lengths.
HEAD = {
    "magic": range(0, 2),
    "version": range(2, 3),
    "flags": range(3, 4),
    "key_id": range(4, 8),
    "domain": range(8, 9),
    "kind": range(9, 11),
    "incarnation": range(11, 19),
    "sequence": range(19, 27),
    "issued_at": range(27, 35),
    "deadline_kind": range(35, 36),
    "deadline": range(36, 44),
    "roster": range(44, 48),
}
HEAD_BYTES = 48
SIGNATURE_BYTES, SEAL_BYTES = 64, 32
JUNK_BYTES = 10 << 20
PARTS: dict[str, frozenset[str]] = {
    "magic": frozenset({"malformed"}),
    "version": frozenset({"wrong_version"}),
    "flags": frozenset({"malformed"}),
    "key_id": frozenset({"unknown_key"}),
    "domain": frozenset({"malformed", "unknown_key"}),
    "kind": frozenset({"bad_seal"}),
    "incarnation": frozenset({"bad_seal"}),
    "sequence": frozenset({"bad_seal", "malformed"}),
    "issued_at": frozenset({"bad_seal"}),
    "deadline_kind": frozenset({"bad_seal", "malformed"}),
    "deadline": frozenset({"bad_seal"}),
    "roster": frozenset({"bad_seal"}),
    "names": frozenset({"bad_seal", "malformed", "oversize"}),
    "body_length": frozenset({"malformed", "oversize"}),
    "body": frozenset({"bad_seal"}),
    "signature": frozenset({"bad_seal"}),
    "seal": frozenset({"bad_seal"}),
}


def part_of(sealed: bytes, part: str) -> range:
    """Where a part of signed and sealed bytes lies."""
    names_end = HEAD_BYTES
    for _ in range(4):
        names_end += 1 + sealed[names_end]
    seal = len(sealed) - SEAL_BYTES
    signature = seal - SIGNATURE_BYTES
    behind = {
        "names": range(HEAD_BYTES, names_end),
        "body_length": range(names_end, names_end + 4),
        "body": range(names_end + 4, signature),
        "signature": range(signature, seal),
        "seal": range(seal, len(sealed)),
    }
    return {**HEAD, **behind}[part]


def flipped(part: str) -> Make:
    """One byte of a part is another one; one position after the other."""

    def make(forge: Forge, number: int) -> Case:
        sealed = bytearray(forge.spare())
        places = part_of(bytes(sealed), part)
        sealed[places[number % len(places)]] ^= forge.chance.randrange(1, 256)
        return entry(bytes(sealed))

    return make


def of_spare(change: Callable[[bytes, Forge, int], bytes]) -> Make:
    """Good bytes, changed."""
    return lambda forge, number: entry(change(forge.spare(), forge, number))


def of_recent(change: Callable[[bytes, bytes], bytes]) -> Make:
    """Made of two messages that are on the stream."""

    def make(forge: Forge, number: int) -> Case:
        one, other = forge.chance.sample(list(forge.recent), 2)
        return entry(change(one, other))

    return make


def swapped(one: bytes, other: bytes, size: int, behind: int) -> bytes:
    """One message with `size` bytes of another, so far before the end."""
    start, end = len(other) - behind - size, len(other) - behind
    return one[: len(one) - behind - size] + other[start:end] + one[len(one) - behind :]


def unsigned(sealed: bytes) -> bytes:
    """The flag cleared and the signature cut out, by somebody who can't make a new seal."""
    return sealed[:3] + b"\0" + sealed[4 : -SIGNATURE_BYTES - SEAL_BYTES] + sealed[-SEAL_BYTES:]


def torn(sealed: bytes, forge: Forge) -> bytes:
    """A piece is missing in the middle."""
    start = forge.chance.randrange(len(sealed) - 1)
    return sealed[:start] + sealed[forge.chance.randrange(start + 1, len(sealed)) :]


@cache
def junk(head: bytes) -> bytes:
    return head.ljust(JUNK_BYTES, b"\xa5")


def heavy_junk(forge: Forge, number: int) -> Case:
    """Ten megabytes, of which every other one begins as what the reader knows."""
    return entry(junk(b"" if number % 2 else bytes(48)))


def known_heavy_junk(forge: Forge, number: int) -> Case:
    """The head of a message that the reader has met, and the most bytes that are not too long at first sight."""
    return entry(forge.spare() + bytes(1 << 20))


def plain(name: str, make: Make, *allowed: str, heavy: bool = False, by_record: bool = False) -> Class:
    return Class(name, make, frozenset(allowed), heavy, by_record)


ANY_BYTES = ("malformed", "wrong_version", "unknown_key", "bad_seal", "oversize")
BYTES: Sequence[Class] = (
    *(plain(f"flipped_{part}", flipped(part), *allowed) for part, allowed in PARTS.items()),
    plain("truncated", of_spare(lambda sealed, _, number: sealed[: number % len(sealed)]), "malformed"),
    plain("beheaded", of_spare(lambda sealed, _, number: sealed[1 + number % (len(sealed) - 1) :]), *ANY_BYTES),
    plain("torn", of_spare(lambda sealed, forge, _: torn(sealed, forge)), *ANY_BYTES),
    plain(
        "extended",
        of_spare(lambda sealed, forge, number: sealed + forge.chance.randbytes(1 + number % 200)),
        "malformed",
    ),
    plain(
        "led_in", of_spare(lambda sealed, forge, number: forge.chance.randbytes(1 + number % 40) + sealed), *ANY_BYTES
    ),
    plain("twice_in_one", of_spare(lambda sealed, *_: sealed + sealed), "malformed"),
    plain("random_bytes", lambda forge, number: entry(forge.chance.randbytes(number % 1000)), *ANY_BYTES),
    plain(
        "random_behind_head",
        of_spare(lambda sealed, forge, number: sealed[:48] + forge.chance.randbytes(number % 1000)),
        *ANY_BYTES,
    ),
    plain("all_zero", lambda forge, number: entry(bytes(number % 1000)), "malformed"),
    plain("seal_of_another", of_recent(lambda one, other: swapped(one, other, 32, 0)), "bad_seal"),
    plain("signature_of_another", of_recent(lambda one, other: swapped(one, other, 64, 32)), "bad_seal"),
    plain("trailer_of_another", of_recent(lambda one, other: swapped(one, other, 96, 0)), "bad_seal"),
    plain("signature_stripped", of_spare(lambda sealed, *_: unsigned(sealed)), "bad_seal"),
    plain("seal_stripped", of_spare(lambda sealed, *_: sealed[:-32]), "malformed"),
    plain("seal_of_zeros", of_spare(lambda sealed, *_: sealed[:-32] + bytes(32)), "bad_seal"),
    plain("empty_message", lambda *_: entry(b""), "malformed"),
    plain("no_message_field", lambda forge, _: Case((b"x", forge.spare())), "malformed"),
    plain("junk_before_message", lambda forge, _: Case((b"m", b"junk", b"m", forge.spare())), "malformed"),
    plain("ten_megabytes", heavy_junk, "oversize", heavy=True),
    plain("megabyte_behind_known", known_heavy_junk, "malformed", heavy=True),
    plain("replayed", lambda forge, _: entry(forge.chance.choice(forge.recent)), "replayed", by_record=True),
)
