"""An opener that has met a producer before answers as one that has not, and whatever it refuses leaves no trace."""

from __future__ import annotations

import hmac
from hashlib import sha256

import pytest
from hypothesis import given, settings, strategies as st

from esper.errors import RefusedError, UnsealedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import MAGIC, DeadlineKind
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.keys.mac import Mac
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.routes import MOST_ROUTES
from esper.leyline.seal import Opener, Sealer
from tests.faults.captures import sealed_anew

S = 1_000_000_000
NOW_MS = 1_700_000_000_000
RUN = "test-00000001"
OLD = MasterKeyring.new(NOW_MS * 1_000_000)
MASTER = OLD.rotate(NOW_MS * 1_000_000 + 100 * S, overlap_s=50)  # the old key ends at 150 s
PRODUCER = MASTER.derive(RUN, [Role.CONTROLLER])
READER = MASTER.derive(RUN, [Role.WORKER])


def command(number: int = 0) -> pb.AdaptationCommand:
    seed = pb.SeedCommand(seed_id="s0", operation=pb.SeedOperation.SEED_OP_CULL)
    kind = pb.CommandType.COMMAND_SEED
    return pb.AdaptationCommand(version=1, command_id=f"c-{number}", command_type=kind, seed_command=seed)


def sealer(after_s: int = 0, producer: str = "c", incarnation: int = 7) -> Sealer:
    return Sealer(
        PRODUCER, Role.CONTROLLER, producer, incarnation=incarnation, clock_ns=lambda: NOW_MS * 1_000_000 + after_s * S
    )


def opener() -> tuple[Opener, ReplayGuard]:
    guard = ReplayGuard()
    return Opener(READER, guard=guard, accept=[Domain.COMMAND]), guard


def verdict(by: Opener, data: bytes, entry_id: str, now_ms: int) -> str:
    try:
        opened = by.open(data, entry_id, now_ms)
    except RefusedError as error:
        return pb.ReasonCode.Name(error.reason)
    return f"{opened.header} {opened.digest.hex()} {opened.redelivered} {opened.clock_suspect}"


@given(st.binary(min_size=0, max_size=200), st.binary(min_size=0, max_size=700))
def test_a_mac_is_the_librarys_hmac(key: bytes, data: bytes) -> None:
    assert Mac(key).digest(data) == hmac.digest(key, data, "sha256")


CHANGES = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 2_000)),
    st.tuples(st.just("cut"), st.integers(1, 300)),
    st.tuples(st.just("add"), st.integers(1, 40)),
    st.tuples(st.just("late"), st.integers(-200, 200)),
    st.tuples(st.just("read"), st.integers(-200, 200)),
    st.tuples(st.just("nothing"), st.just(0)),
)


@settings(max_examples=300)
@given(CHANGES, st.sampled_from([(DeadlineKind.NONE, 0), (DeadlineKind.STEP, 3), (DeadlineKind.TIME_NS, 5)]))
def test_met_before_or_not_the_verdict_is_the_same(change: tuple[str, int], deadline: tuple[DeadlineKind, int]) -> None:
    kind, due_s = deadline
    at = NOW_MS * 1_000_000 + due_s * S if kind is DeadlineKind.TIME_NS else due_s
    by = sealer()
    first, second = by.seal(command()), by.seal(command(1), deadline=(kind, at))
    data, entry_ms, now_ms = changed(second, change)
    (warm, warm_guard), (cold, _) = opener(), opener()
    warm.open(first, f"{NOW_MS}-0", NOW_MS)
    warm_guard.changed()

    met, not_met = (verdict(each, data, f"{entry_ms}-1", now_ms) for each in (warm, cold))

    assert met == not_met
    if met in ("REASON_BAD_SEAL", "REASON_MALFORMED", "REASON_STALE", "REASON_UNKNOWN_KEY", "REASON_WRONG_CONTEXT"):
        assert warm_guard.changed() == {}


@pytest.mark.parametrize("num_bits", [1, 8 * 40])
def test_a_forged_seal_of_a_producer_that_was_met_is_told_as_that_of_a_stranger(num_bits: int) -> None:
    good = sealer().seal(command())
    forged = good[:-40] + bytes(byte ^ 0x80 if at < num_bits / 8 else byte for at, byte in enumerate(good[-40:]))
    (warm, _), (cold, _) = opener(), opener()
    warm.open(good, f"{NOW_MS}-0", NOW_MS)

    errors = [forgery(each, forged) for each in (warm, cold)]

    assert [(type(error), error.reason, str(error)) for error in errors] == 2 * [
        (UnsealedError, pb.ReasonCode.REASON_BAD_SEAL, f"the seal of c in run {RUN} does not fit the keys of {RUN}")
    ]


def forgery(by: Opener, data: bytes) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        by.open(data, f"{NOW_MS}-1", NOW_MS)
    return caught.value


def changed(data: bytes, change: tuple[str, int]) -> tuple[bytes, int, int]:
    """The bytes, the time of their entry, and when they are read."""
    what, much = change
    match what:
        case "flip":
            byte, bit = divmod(much % (len(data) * 8), 8)
            data = data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]
        case "cut":
            data = data[:-much]
        case "add":
            data += bytes(much)
    late_ms = much * 1_000
    return data, NOW_MS + late_ms * (what == "late"), NOW_MS + late_ms * (what in ("late", "read"))


def test_a_key_that_is_retired_is_refused_though_its_producer_was_met() -> None:
    warm, _ = opener()
    by = Sealer(OLD.derive(RUN, [Role.CONTROLLER]), Role.CONTROLLER, "c", clock_ns=lambda: NOW_MS * 1_000_000 + 149 * S)

    in_time, late = (
        verdict(warm, by.seal(command()), f"{NOW_MS + after_ms}-0", NOW_MS + after_ms)
        for after_ms in (149_000, 151_000)
    )

    assert in_time.startswith("Header")
    assert late == "REASON_UNKNOWN_KEY"


def test_a_key_that_ends_within_a_millisecond_opens_what_came_before_it() -> None:
    master = OLD.rotate(NOW_MS * 1_000_000 + 100 * S + 500_000, overlap_s=50)  # the old key ends at 150.0005 s
    warm = Opener(master.derive(RUN, [Role.WORKER]), guard=None, accept=[Domain.COMMAND])
    by = Sealer(OLD.derive(RUN, [Role.CONTROLLER]), Role.CONTROLLER, "c", clock_ns=lambda: NOW_MS * 1_000_000 + 149 * S)

    verdicts = [
        verdict(warm, by.seal(command()), f"{NOW_MS + at}-0", NOW_MS + at) for at in (149_000, 150_000, 150_001)
    ]

    assert [each.partition("(")[0] for each in verdicts] == ["Header", "Header", "REASON_UNKNOWN_KEY"]


def test_a_sealer_takes_the_new_key_at_the_moment_it_takes_over() -> None:
    times = iter([0, 99, 100, 149])
    by = Sealer(PRODUCER, Role.CONTROLLER, "c", clock_ns=lambda: NOW_MS * 1_000_000 + next(times) * S)

    ids = [int.from_bytes(by.seal(command())[4:8]) for _ in range(4)]

    first, second = (validity.key_id for validity in MASTER.validities)
    assert ids == [first, first, second, second]


def test_bytes_that_are_not_authentic_never_fill_the_table_of_routes() -> None:
    warm, _ = opener()
    data = sealer().seal(command())
    for incarnation in range(100, 150):
        forged = data[:11] + incarnation.to_bytes(8) + data[19:]
        assert verdict(warm, forged, f"{NOW_MS}-0", NOW_MS) == "REASON_BAD_SEAL"

    assert data.startswith(MAGIC)
    assert warm._routes.find(data) is None


def test_more_producers_than_the_table_holds_are_opened_all_the_same() -> None:
    warm, _ = opener()
    for incarnation in range(MOST_ROUTES + 20):
        data = sealer(incarnation=incarnation).seal(command())
        assert verdict(warm, data, f"{NOW_MS}-{incarnation}", NOW_MS).startswith("Header")


def test_what_is_sealed_anew_has_its_old_sequence_and_takes_effect_once() -> None:
    late_s = 0
    by = Sealer(PRODUCER, Role.CONTROLLER, "c", clock_ns=lambda: NOW_MS * 1_000_000 + late_s * S)
    first = by.seal(command())
    late_s = 45
    again = sealed_anew(by, first)
    warm, _ = opener()

    opened = warm.open(again, f"{NOW_MS + 45_000}-0", NOW_MS + 45_000)

    assert (opened.header.sequence, opened.header.issued_at_ns) == (1, (NOW_MS + 45_000) * 1_000_000)
    assert verdict(warm, first, f"{NOW_MS + 45_000}-1", NOW_MS + 45_000) == "REASON_DUPLICATE"
    assert opened.digest == sha256(again).digest()
