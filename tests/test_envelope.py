"""What is refused, for which reason, and in which order it is checked."""

from __future__ import annotations

import hmac
import struct

import pytest
from hypothesis import given, settings, strategies as st

from esper.errors import RefusedError, UnsealedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import BODY_CAP_BYTES, COMMAND_CAP_BYTES, DeadlineKind, Header, unpack
from esper.leyline.keys.derive import seal_key
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer, check_signature
from tests.altered import altered
from tests.sealed import (
    CONTROLLER,
    COORDINATOR,
    ENTRY,
    MASTER,
    NOW_MS,
    NOW_NS,
    RUN,
    command,
    controller,
    refusal,
    worker_opener,
)

SEALED = controller().seal(command())
OTHER_RUN = MASTER.derive("other-00000000", [Role.CONTROLLER])
KEY_ID = CONTROLLER.validities[0].key_id


def header(**changes: object) -> Header:
    fields: dict[str, object] = {
        "key_id": KEY_ID,
        "domain": Domain.COMMAND,
        "kind": 101,
        "incarnation": 5,
        "sequence": 1,
        "issued_at_ns": NOW_NS,
        "deadline_kind": DeadlineKind.NONE,
        "deadline": 0,
        "roster_generation": 0,
        "run_id": RUN,
        "role": Role.CONTROLLER,
        "producer": "controller-0",
        "target": "*",
    }
    return Header(**(fields | changes))  # type: ignore[arg-type]


def pack(head: Header, body: bytes) -> bytes:
    """All bytes before the signature and the seal, by docs/security.md."""
    fixed = b"ES" + struct.pack(">BBIBHQQQBQI", 1, head.signed, head.key_id, *head[1:9])
    names = b"".join(bytes([len(name)]) + name.encode() for name in head[9:13])
    return fixed + names + struct.pack(">I", len(body)) + body


def sealed_by_hand(head: Header, body: bytes, domain: Domain = Domain.COMMAND, role: Role = Role.CONTROLLER) -> bytes:
    """Bytes with a good seal around whatever a holder of the key may write."""
    _, key = CONTROLLER.seal_key(domain, role, NOW_NS)
    data = pack(head, body)
    return data + hmac.digest(key, data, "sha256")


def test_what_was_sealed_is_opened_with_its_header() -> None:
    opened = worker_opener().open(SEALED, ENTRY, NOW_MS)

    assert opened.message == command()
    assert (opened.header.run_id, opened.header.role, opened.header.producer) == (RUN, "controller", "controller-0")
    assert (opened.header.sequence, opened.header.kind, opened.header.issued_at_ns) == (1, 101, NOW_NS)
    assert not opened.redelivered


@given(st.integers(0, len(SEALED) * 8 - 1))
@settings(max_examples=400)
def test_any_flipped_bit_is_refused_and_not_noted(bit: int) -> None:
    flipped = bytearray(SEALED)
    flipped[bit // 8] ^= 1 << bit % 8
    guard = ReplayGuard()

    with pytest.raises(RefusedError):
        worker_opener(guard=guard).open(bytes(flipped), ENTRY, NOW_MS)

    assert guard.changed() == {}


@given(st.integers(0, len(SEALED) - 1))
def test_any_cut_is_malformed(length: int) -> None:
    assert refusal(worker_opener(), SEALED[:length]) == "REASON_MALFORMED"


@given(st.binary(max_size=400))
def test_junk_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        worker_opener().open(data, ENTRY, NOW_MS)


def test_bytes_added_at_the_end_are_malformed() -> None:
    assert refusal(worker_opener(), SEALED + b"\0") == "REASON_MALFORMED"


def test_a_body_that_is_not_authentic_is_never_parsed() -> None:
    no_command = b"\xff\xff\xff"
    good, forged = sealed_by_hand(header(), no_command), pack(header(), no_command) + bytes(32)

    assert refusal(worker_opener(), good) == "REASON_MALFORMED"
    assert refusal(worker_opener(), forged) == "REASON_BAD_SEAL"


@pytest.mark.parametrize("name", ["", "é" * 128])
def test_a_name_that_no_header_holds_seals_nothing(name: str) -> None:
    sealer = Sealer(CONTROLLER, Role.CONTROLLER, name, clock_ns=lambda: NOW_NS)

    with pytest.raises(RefusedError, match="expected 1 to 255"):
        sealer.seal(command())


def test_a_command_over_its_cap_is_oversize_before_its_seal_is_looked_at() -> None:
    at_the_cap = pack(header(), bytes(COMMAND_CAP_BYTES)) + bytes(32)
    over_it = pack(header(), bytes(COMMAND_CAP_BYTES + 1)) + bytes(32)

    assert refusal(worker_opener(), at_the_cap) == "REASON_BAD_SEAL"
    assert refusal(worker_opener(), over_it) == "REASON_OVERSIZE"
    assert refusal(worker_opener(), bytes(BODY_CAP_BYTES * 2)) == "REASON_OVERSIZE"


def test_a_frame_over_a_mebibyte_is_oversize() -> None:
    over = header(domain=Domain.TELEMETRY, kind=601, role=Role.WORKER)

    assert refusal(worker_opener(), pack(over, bytes(BODY_CAP_BYTES + 1)) + bytes(32)) == "REASON_OVERSIZE"


def test_an_oversize_body_is_refused_at_the_sealer_and_costs_no_sequence() -> None:
    sealer, big = controller(), command()
    big.annotations["note"] = "x" * COMMAND_CAP_BYTES

    with pytest.raises(RefusedError) as refused:
        sealer.seal(big)

    assert refused.value.reason == pb.ReasonCode.REASON_OVERSIZE
    assert worker_opener().open(sealer.seal(command()), ENTRY, NOW_MS).header.sequence == 1


def test_a_message_of_another_run_is_refused() -> None:
    data = Sealer(OTHER_RUN, Role.CONTROLLER, "controller-0", clock_ns=lambda: NOW_NS).seal(command())

    assert refusal(worker_opener(), data) == "REASON_BAD_SEAL"


def test_a_header_that_names_another_run_under_a_good_seal_is_out_of_context() -> None:
    data = sealed_by_hand(header(run_id="other-00000000"), command().SerializeToString())

    assert refusal(worker_opener(), data) == "REASON_WRONG_CONTEXT"


def test_a_domain_that_this_reader_does_not_expect_is_out_of_context() -> None:
    assert refusal(worker_opener(accept=[Domain.DECISION]), SEALED) == "REASON_WRONG_CONTEXT"


def test_a_seal_of_one_domain_does_not_fit_another() -> None:
    optimizer = pb.OptimizerCommand(version=1, command_id="c", optimizer_id="host").SerializeToString()
    data = sealed_by_hand(header(domain=Domain.OPTIMIZER, kind=201, role=Role.OPTIMIZER), optimizer)

    assert refusal(worker_opener(accept=[Domain.OPTIMIZER]), data) == "REASON_BAD_SEAL"


def test_a_role_that_may_not_seal_a_domain_has_no_key_there() -> None:
    data = sealed_by_hand(header(role=Role.WORKER), command().SerializeToString())

    assert refusal(worker_opener(), data) == "REASON_UNKNOWN_KEY"


def test_a_message_for_another_target_is_out_of_context() -> None:
    data = controller().seal(command(), target="worker-1")

    assert refusal(worker_opener("worker-0"), data) == "REASON_WRONG_CONTEXT"
    assert worker_opener("worker-1").open(data, ENTRY, NOW_MS).header.target == "worker-1"


@pytest.mark.parametrize("kind", [102, 201, 401, 0, 65535])
def test_a_kind_that_does_not_travel_in_its_domain_is_of_the_wrong_type(kind: int) -> None:
    data = sealed_by_hand(header(kind=kind), command().SerializeToString())

    assert refusal(worker_opener(), data) == "REASON_WRONG_TYPE"


def test_an_unknown_key_is_named() -> None:
    data = sealed_by_hand(header(key_id=KEY_ID ^ 1), command().SerializeToString())

    with pytest.raises(RefusedError, match=f"key {KEY_ID ^ 1:08x} for command sealed by controller is not held"):
        worker_opener().open(data, ENTRY, NOW_MS)


def test_another_version_of_the_envelope_is_refused() -> None:
    data = SEALED[:2] + b"\x02" + SEALED[3:]

    assert refusal(worker_opener(), data) == "REASON_WRONG_VERSION"


def test_another_version_of_the_message_is_refused_whoever_sealed_it() -> None:
    of_tomorrow = command()
    of_tomorrow.version = 2

    assert refusal(worker_opener(), controller().seal(of_tomorrow)) == "REASON_WRONG_VERSION"


@pytest.mark.parametrize(
    ("issued_s", "reason"), [(61, "REASON_FROM_THE_FUTURE"), (-61, "REASON_STALE"), (60, ""), (-60, "")]
)
def test_a_message_is_fresh_within_a_minute_of_its_entry(issued_s: int, reason: str) -> None:
    data = controller(NOW_NS + issued_s * 1_000_000_000).seal(command())
    much_later_ms = NOW_MS + 86_400_000

    if reason:
        assert refusal(worker_opener(), data, ENTRY, much_later_ms) == reason
    else:
        assert worker_opener().open(data, ENTRY, much_later_ms).message == command()


@pytest.mark.parametrize(("issued_s", "side"), [(86_400, "after"), (-86_400, "before")])
def test_what_is_not_fresh_says_whose_clock_it_is_sealed_by(issued_s: int, side: str) -> None:
    data = controller(NOW_NS + issued_s * 1_000_000_000).seal(command())

    with pytest.raises(RefusedError) as refused:
        worker_opener().open(data, ENTRY, NOW_MS)

    off = f"sealed 86400.0 s {side} its entry was made, by the clock of who sealed it"
    assert refused.value.detail == f"{off}; expected at most 60 s"


def test_an_entry_ahead_of_the_servers_clock_is_aged_by_the_reading_and_marked() -> None:
    entry = f"{NOW_MS + 3_600_000}-0"
    for_the_poisoned_clock = controller(NOW_NS + 3_600 * 1_000_000_000).seal(command())

    assert refusal(worker_opener(), for_the_poisoned_clock, entry) == "REASON_FROM_THE_FUTURE"
    assert refusal(worker_opener(), SEALED, entry, NOW_MS + 61_000) == "REASON_STALE"
    assert worker_opener().open(SEALED, entry, NOW_MS).clock_suspect


def test_a_deadline_in_time_is_checked_by_the_judge_and_not_by_those_who_carry_out() -> None:
    data = controller().seal(command(), deadline=(DeadlineKind.TIME_NS, NOW_NS + 1_000_000))
    late_ms = NOW_MS + 2
    carries_out = Opener(COORDINATOR, guard=None, accept=[Domain.COMMAND], carries_out=True)

    assert worker_opener().open(data, ENTRY, NOW_MS + 1).header.deadline_kind is DeadlineKind.TIME_NS
    assert refusal(worker_opener(), data, ENTRY, late_ms) == "REASON_PAST_DEADLINE"
    assert carries_out.open(data, ENTRY, late_ms).message == command()


def test_a_deadline_in_steps_is_left_to_the_judge() -> None:
    data = controller().seal(command(), deadline=(DeadlineKind.STEP, 7), roster_generation=3)

    opened = worker_opener().open(data, ENTRY, NOW_MS + 10_000)

    assert (opened.header.deadline_kind, opened.header.deadline) == (DeadlineKind.STEP, 7)
    assert opened.header.roster_generation == 3


def test_sequences_run_from_one_without_a_gap_for_each_target() -> None:
    sealer, opener = controller(), worker_opener()
    targets = ["*", "worker-0", "*", "worker-0", "worker-0"]

    opened = [
        opener.open(sealer.seal(command(), target=target), f"{NOW_MS}-{i}", NOW_MS) for i, target in enumerate(targets)
    ]

    assert [one.header.sequence for one in opened] == [1, 1, 2, 2, 3]


def test_a_command_carries_the_controllers_signature() -> None:
    check_signature(SEALED, WORKER_KEYS)

    parts = unpack(SEALED)
    assert parts.header.signed and parts.seal_start - parts.body_end == 64


def test_a_verifier_can_forge_a_seal_but_not_the_signature() -> None:
    secret = MASTER.derive(RUN, [Role.WORKER]).open_key(KEY_ID, Domain.COMMAND, Role.CONTROLLER, NOW_NS)
    data = pack(header(signed=True), command().SerializeToString()) + bytes(64)
    forged = data + hmac.digest(secret, data, "sha256")

    assert worker_opener().open(forged, ENTRY, NOW_MS).message == command()
    with pytest.raises(RefusedError, match="did not sign"):
        check_signature(forged, WORKER_KEYS)
    with pytest.raises(RefusedError, match="no signature"):
        check_signature(sealed_by_hand(header(), command().SerializeToString()), WORKER_KEYS)


WORKER_KEYS: RoleKeyring = MASTER.derive(RUN, [Role.WORKER])


def test_derived_keys_differ_by_run_domain_and_role() -> None:
    secret = bytes(32)
    keys = {
        seal_key(secret, 1, RUN, Domain.RECEIPT, Role.WORKER),
        seal_key(secret, 1, RUN, Domain.RECEIPT, Role.COORDINATOR),
        seal_key(secret, 1, RUN, Domain.VOTE, Role.WORKER),
        seal_key(secret, 1, "other", Domain.RECEIPT, Role.WORKER),
        seal_key(secret, 2, RUN, Domain.RECEIPT, Role.WORKER),
    }

    assert len(keys) == 5


@pytest.mark.parametrize(
    ("data", "sealed"),
    [
        (SEALED[:-1], False),
        (b"junk", False),
        (bytes(1 << 21), False),
        (altered(SEALED), False),
        (controller().seal(pb.AdaptationCommand(version=2)), True),
        (controller(NOW_NS - 3_600_000_000_000).seal(command()), True),
        (sealed_by_hand(header(), b"\xff\xff\xff"), True),
        # A reader of another version could open it, one with the keys of its run as well.
        (SEALED[:2] + b"\x09" + SEALED[3:], True),
        (Sealer(OTHER_RUN, Role.CONTROLLER, "c", clock_ns=lambda: NOW_NS).seal(command()), True),
    ],
)
def test_what_is_told_as_unsealed_is_what_no_holder_of_a_key_has_sealed(data: bytes, sealed: bool) -> None:
    with pytest.raises(RefusedError) as refused:
        worker_opener().open(data, ENTRY, NOW_MS)

    assert isinstance(refused.value, UnsealedError) != sealed
