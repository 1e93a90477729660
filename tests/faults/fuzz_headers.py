"""Headers that make no sense under a good seal, and seals by the wrong key: what a holder of some key can do."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from esper.leyline.keys.keyring import SECOND_NS
from esper.leyline.kinds import Domain, Role
from tests.faults.forge import DAY_NS, Draft, Forge, named, packed_names
from tests.faults.fuzz_bytes import plain
from tests.faults.fuzz_case import ACCEPTED, Case, Class, Make, entry

NO_TEXT = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"forge\xf8")
COMMAND_CAP = 64 << 10
BODY_CAP = 1 << 20

Change = Callable[[Draft, Forge, int], Draft]


def under_seal(change: Change, role: str = Role.CONTROLLER) -> Make:
    """A good draft, changed, and sealed by the key that belongs to what it then says."""
    return lambda forge, number: entry(forge.sealed(change(forge.draft(), forge, number), role=role))


def having(**values: object) -> Change:
    return lambda draft, forge, number: replace(draft, **values)  # type: ignore[arg-type]


def of(field: str, draw: Callable[[Forge, int], object]) -> Change:
    return lambda draft, forge, number: replace(draft, **{field: draw(forge, number)})  # type: ignore[arg-type]


def by_key(key: Callable[[Forge, Draft], bytes]) -> Make:
    """A good draft under another key."""

    def make(forge: Forge, number: int) -> Case:
        draft = forge.draft()
        return entry(forge.sealed(draft, key=key(forge, draft)))

    return make


def for_another_run(forge: Forge, number: int) -> Case:
    """Good in its own run, whose keys have the same ids."""
    run = f"another-{number % 100:08x}"
    draft = replace(forge.draft(), names=packed_names(run, Role.CONTROLLER, "forge", "*"))
    return entry(forge.sealed(draft, key=forge.secrets.seal_key(draft.key_id, draft.domain, b"controller", run)))


def name_like(at: int, value: Callable[[Forge, int], bytes]) -> Change:
    """One of the four names is another one."""

    def change(draft: Draft, forge: Forge, number: int) -> Draft:
        names = [forge.secrets.run.encode(), b"controller", b"forge", b"*"]
        names[at % 4] = value(forge, number)
        return replace(draft, names=named(names))

    return change


def any_name(draft: Draft, forge: Forge, number: int, *, value: Callable[[Forge, int], bytes]) -> Draft:
    return name_like(number, value)(draft, forge, number)


def lying_lengths(draft: Draft, forge: Forge, number: int) -> Draft:
    """The length of one name is another one than it has; one after the other."""
    names, at = bytearray(draft.names), 0
    for _ in range(number % 4):
        at += 1 + names[at]
    names[at] ^= 1 + (number // 4) % 255
    return replace(draft, names=bytes(names))


def lying_body(draft: Draft, forge: Forge, number: int) -> Draft:
    """A body length that is off by a little or by much."""
    off = (1, -1, 32, -32, 96, 1 << 16, 1 << 20, (1 << 32) - 1 - len(draft.body))[number % 8]
    return replace(draft, body_length=max(0, len(draft.body) + off) if off != -32 else 0)


def big(cap: int) -> Change:
    return lambda draft, forge, number: replace(draft, body=bytes(cap + 1 + number % 100))


def later(forge: Forge, number: int) -> int:
    """A time from now, beyond what is fresh."""
    return forge.clock_ns() + (70 + number % 3600) * SECOND_NS


def earlier(forge: Forge, number: int) -> int:
    return max(0, forge.clock_ns() - (70 + number % 3600) * SECOND_NS)


def sealed_anew(forge: Forge, number: int) -> Case:
    """The sequence of a message that is on the stream, with other bytes."""
    return entry(forge.sealed(replace(forge.draft(), sequence=forge.sequence_met())))


def without_signature(forge: Forge, number: int) -> Case:
    """Who holds the seal key but not the signing key: openers take it, audits don't."""
    command = forge.command()
    draft = replace(forge.draft(command.SerializeToString()), flags=0)
    return entry(forge.sealed(draft), command.command_id)


def with_signature(signature: Callable[[Forge], bytes]) -> Make:
    def make(forge: Forge, number: int) -> Case:
        command = forge.command()
        draft = forge.draft(command.SerializeToString())
        return entry(forge.sealed(draft, signature=signature(forge)), command.command_id)

    return make


def beside_other_fields(forge: Forge, number: int) -> Case:
    """An entry may have fields that nobody knows."""
    command_id, sealed = forge.genuine()
    other = (b"trace", b"0" * (number % 100))
    fields = (b"m", sealed, *other) if number % 2 else (*other, b"m", sealed)
    return Case(fields, command_id)


def odd(name: str, make: Make, *, audited: bool = True) -> Class:
    """It takes effect, and that is stated."""
    return Class(name, make, frozenset({ACCEPTED}), audited=audited)


RUN, ROLE, PRODUCER, TARGET = range(4)
HEADERS: Sequence[Class] = (
    plain("wrong_magic", under_seal(of("magic", lambda forge, _: forge.chance.randbytes(2))), "malformed"),
    plain("wrong_version", under_seal(of("version", lambda _, number: 2 + number % 254)), "wrong_version"),
    plain("unknown_flags", under_seal(of("flags", lambda _, number: 2 + number % 254)), "malformed"),
    plain("unknown_key_id", under_seal(of("key_id", lambda forge, _: forge.chance.getrandbits(32))), "unknown_key"),
    plain(
        "retired_key", under_seal(lambda draft, forge, _: replace(draft, key_id=forge.secrets.retired)), "unknown_key"
    ),
    plain(
        "key_not_valid_yet",
        under_seal(lambda draft, forge, _: replace(draft, key_id=forge.secrets.early)),
        "unknown_key",
    ),
    plain("key_made_up", by_key(lambda forge, _: forge.chance.randbytes(32)), "bad_seal"),
    plain(
        "key_of_another_run",
        by_key(
            lambda forge, draft: forge.secrets.seal_key(draft.key_id, draft.domain, b"controller", "another-00000000")
        ),
        "bad_seal",
    ),
    plain(
        "key_of_another_domain",
        by_key(
            lambda forge, draft: forge.secrets.seal_key(draft.key_id, Domain.RECEIPT, b"controller", forge.secrets.run)
        ),
        "bad_seal",
    ),
    plain(
        "key_of_another_role",
        by_key(lambda forge, draft: forge.secrets.seal_key(draft.key_id, draft.domain, b"worker", forge.secrets.run)),
        "bad_seal",
    ),
    plain("empty_key", by_key(lambda *_: b""), "bad_seal"),
    plain(
        "plain_hash_for_seal",
        lambda forge, _: entry((data := forge.spare()[:-32]) + hmac.digest(bytes(32), data, "sha256")),
        "bad_seal",
    ),
    plain("message_of_another_run", for_another_run, "bad_seal"),
    plain("wrong_run", under_seal(name_like(RUN, lambda _, number: b"another-%08x" % number)), "wrong_context"),
    plain(
        "wrong_target",
        under_seal(name_like(TARGET, lambda _, number: b"worker-%d" % (number + 1_000))),
        "wrong_context",
    ),
    plain("unknown_role", under_seal(name_like(ROLE, lambda _, number: b"nobody-%d" % number)), "malformed"),
    plain(
        "role_that_may_not", under_seal(name_like(ROLE, lambda _, number: b"coordinator"), "coordinator"), "unknown_key"
    ),
    plain("role_of_reader", under_seal(name_like(ROLE, lambda *_: b"worker"), "worker"), "unknown_key"),
    plain(
        "unknown_domain", under_seal(of("domain", lambda _, number: (0, *range(11, 256))[number % 246])), "malformed"
    ),
    plain("domain_not_held", under_seal(having(domain=int(Domain.AGGREGATE), kind=701)), "unknown_key"),
    plain(
        "domain_of_another_stream",
        under_seal(
            lambda draft, forge, number: replace(
                name_like(ROLE, lambda *_: b"optimizer")(draft, forge, number), domain=int(Domain.OPTIMIZER), kind=201
            ),
            "optimizer",
        ),
        "wrong_context",
    ),
    plain(
        "wrong_kind",
        under_seal(of("kind", lambda _, number: (201, 301, 402, 501, 601, 1001)[number % 6])),
        "wrong_type",
    ),
    plain(
        "unknown_kind", under_seal(of("kind", lambda _, number: (0, 100, 102, 199, 65535)[number % 5])), "wrong_type"
    ),
    plain("lying_name_lengths", under_seal(lying_lengths), "malformed", "oversize"),
    plain(
        "names_no_utf8", under_seal(partial(any_name, value=lambda _, number: NO_TEXT[number // 4 % 4])), "malformed"
    ),
    plain("names_empty", under_seal(partial(any_name, value=lambda *_: b"")), "malformed"),
    plain("lying_body_length", under_seal(lying_body), "malformed", "oversize"),
    plain("oversize_command", under_seal(big(COMMAND_CAP)), "oversize"),
    plain("oversize_message", under_seal(big(BODY_CAP)), "oversize", heavy=True),
    plain("sequence_zero", under_seal(having(sequence=0)), "malformed"),
    plain(
        "deadline_passed",
        under_seal(lambda draft, forge, number: replace(draft, deadline_kind=1, deadline=earlier(forge, number))),
        "past_deadline",
    ),
    plain("unknown_deadline_kind", under_seal(of("deadline_kind", lambda _, number: 4 + number % 252)), "malformed"),
    plain("stale", under_seal(of("issued_at_ns", earlier)), "stale"),
    plain("sealed_at_zero", under_seal(having(issued_at_ns=0)), "stale"),
    plain("from_the_future", under_seal(of("issued_at_ns", later)), "from_the_future"),
    plain("from_the_end_of_time", under_seal(having(issued_at_ns=(1 << 64) - 1)), "from_the_future"),
    plain(
        "stale_by_retired_key",
        under_seal(
            lambda draft, forge, _: replace(
                draft, key_id=forge.secrets.retired, issued_at_ns=forge.clock_ns() - 6 * DAY_NS
            )
        ),
        "unknown_key",
    ),
    plain("sealed_anew", sealed_anew, "duplicate", by_record=True),
    odd("unsigned_by_a_key_holder", without_signature, audited=False),
    odd("signature_of_zeros_by_a_key_holder", with_signature(lambda _: bytes(64)), audited=False),
    odd("signature_made_up_by_a_key_holder", with_signature(lambda forge: forge.chance.randbytes(64)), audited=False),
    odd("beside_other_fields", beside_other_fields),
)
