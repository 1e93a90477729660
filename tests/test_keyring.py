"""Who holds which key, when it is valid, and who may read the file."""

from __future__ import annotations

from pathlib import Path
from traceback import TracebackException

import pytest

from esper.errors import RefusedError, SettingError
from esper.leyline.envelope import COMMAND_CAP_BYTES
from esper.leyline.keys.keyring import SECOND_NS, MasterKeyring, RoleKeyring
from esper.leyline.kinds import OPENS, SEALS, Domain, Role
from esper.leyline.seal import Opener, Sealer
from tests.sealed import CONTROLLER, ENTRY, MASTER, NOW_MS, NOW_NS, RUN, command, controller, refusal

KEY_ID = CONTROLLER.validities[0].key_id


def opener(keyring: RoleKeyring) -> Opener:
    return Opener(keyring, guard=None, accept=list(Domain))


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("domain", list(Domain))
def test_a_process_seals_in_the_domains_of_its_role_and_in_no_other(role: Role, domain: Domain) -> None:
    keyring = MASTER.derive(RUN, [role])

    if domain in SEALS[role]:
        assert keyring.seal_key(domain, role, NOW_NS)[0] == KEY_ID
    else:
        with pytest.raises(SettingError):
            keyring.seal_key(domain, role, NOW_NS)


def test_a_keyring_of_another_role_is_named_beside_the_one_that_is_wanted() -> None:
    told = "keyring is 'for observer'; expected one for controller, which seals command"

    with pytest.raises(SettingError, match=told):
        MASTER.derive(RUN, [Role.OBSERVER]).seal_key(Domain.COMMAND, Role.CONTROLLER, NOW_NS)


@pytest.mark.parametrize("role", list(Role))
def test_a_process_holds_the_keys_of_its_roles_and_no_more(role: Role) -> None:
    keyring = MASTER.derive(RUN, [role])
    expected = set(OPENS[role]) | {(domain, role) for domain in SEALS[role]}

    held = set()
    for pair in ((domain, sealing) for domain in Domain for sealing in Role):
        try:
            keyring.open_key(KEY_ID, *pair, NOW_NS)
        except RefusedError:
            continue
        held.add(pair)

    assert held == expected


def test_nobody_but_the_controller_holds_its_signing_key() -> None:
    assert CONTROLLER.signing_key(KEY_ID, Role.CONTROLLER) is not None
    assert MASTER.derive(RUN, [Role.WORKER, Role.COORDINATOR]).signing_key(KEY_ID, Role.CONTROLLER) is None


def test_one_process_may_hold_several_roles() -> None:
    keyring = MASTER.derive(RUN, [Role.CONTROLLER, Role.OPTIMIZER])

    assert keyring.seal_key(Domain.COMMAND, Role.CONTROLLER, NOW_NS) != keyring.seal_key(
        Domain.OPTIMIZER, Role.OPTIMIZER, NOW_NS
    )


def test_a_keyring_read_back_opens_what_the_one_written_sealed(tmp_path: Path) -> None:
    MASTER.save(tmp_path / "master.json")
    MasterKeyring.load(tmp_path / "master.json").derive(RUN, [Role.WORKER]).save(tmp_path / "worker.json")

    keyring = RoleKeyring.load(tmp_path / "worker.json")
    data = Sealer(CONTROLLER, Role.CONTROLLER, "c", clock_ns=lambda: NOW_NS).seal(command())

    assert opener(keyring).open(data, ENTRY, NOW_MS).message == command()
    assert (keyring.run_id, keyring.roles) == (RUN, (Role.WORKER,))
    assert (tmp_path / "worker.json").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["master.json", "worker.json"]


def test_a_role_keyring_holds_no_master_secret(tmp_path: Path) -> None:
    MASTER.save(tmp_path / "master.json")
    MASTER.derive(RUN, list(Role)).save(tmp_path / "all.json")

    secret = (tmp_path / "master.json").read_text().split('"secret": "')[1][:64]

    assert secret not in (tmp_path / "all.json").read_text()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "worker.json"
    MASTER.derive(RUN, [Role.WORKER]).save(path)
    path.chmod(mode)

    with pytest.raises(SettingError, match="only its owner can read"):
        RoleKeyring.load(path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"esper_keyring": "role", "version": 1}', "\udcff"])
def test_a_file_that_is_no_keyring_is_named_in_the_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "worker.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    path.chmod(0o600)

    with pytest.raises(SettingError, match=r"worker\.json"):
        RoleKeyring.load(path)


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="No such file"):
        RoleKeyring.load(tmp_path / "none.json")
    with pytest.raises(SettingError, match="a place to write"):
        MASTER.save(tmp_path / "none" / "master.json")


def test_a_master_keyring_is_no_role_keyring(tmp_path: Path) -> None:
    MASTER.save(tmp_path / "master.json")

    with pytest.raises(SettingError, match="a role keyring"):
        RoleKeyring.load(tmp_path / "master.json")


def test_after_rotation_the_newest_key_seals_and_both_open() -> None:
    before = Sealer(CONTROLLER, Role.CONTROLLER, "c", clock_ns=lambda: NOW_NS).seal(command())
    rotated = MASTER.rotate(NOW_NS, lead_s=10, overlap_s=100)
    keyring = rotated.derive(RUN, [Role.CONTROLLER, Role.COORDINATOR])

    key_id_now, _ = keyring.seal_key(Domain.COMMAND, Role.CONTROLLER, NOW_NS)
    key_id_later, _ = keyring.seal_key(Domain.COMMAND, Role.CONTROLLER, NOW_NS + 10 * SECOND_NS)

    assert (key_id_now, key_id_later) == (KEY_ID, rotated.validities[1].key_id)
    assert opener(keyring).open(before, ENTRY, NOW_MS).message == command()


def test_a_key_is_judged_at_its_entrys_time_so_that_nothing_in_flight_is_refused() -> None:
    retired_s = 100
    keyring = MASTER.rotate(NOW_NS, overlap_s=retired_s).derive(RUN, [Role.WORKER])
    late_ns = NOW_NS + (retired_s - 1) * SECOND_NS
    data = Sealer(CONTROLLER, Role.CONTROLLER, "c", clock_ns=lambda: late_ns).seal(command())
    read_a_day_later_ms = NOW_MS + 86_400_000

    in_flight = f"{NOW_MS + (retired_s - 1) * 1000}-0"
    after = f"{NOW_MS + retired_s * 1000}-0"

    assert opener(keyring).open(data, in_flight, read_a_day_later_ms).message == command()
    assert refusal(opener(keyring), data, after, read_a_day_later_ms) == "REASON_UNKNOWN_KEY"


def test_the_first_messages_under_a_new_key_may_be_dated_by_a_clock_that_is_behind() -> None:
    rotated = MASTER.rotate(NOW_NS + 500_000)  # within a millisecond: ids of entries count whole ones
    sealed = Sealer(rotated.derive(RUN, [Role.CONTROLLER]), Role.CONTROLLER, "c", clock_ns=lambda: NOW_NS + 500_000)
    data, opens = sealed.seal(command()), opener(rotated.derive(RUN, [Role.WORKER]))

    for entry_ms in (NOW_MS, NOW_MS - 59_000, NOW_MS):
        met = opens.open(data, f"{entry_ms}-0", NOW_MS)
        assert met.header.key_id == rotated.validities[1].key_id
    assert refusal(opens, data, f"{NOW_MS - 60_000}-0") == "REASON_UNKNOWN_KEY"


def test_a_new_run_goes_on_where_the_clock_of_its_machine_is_set_back_by_half_a_day() -> None:
    keyring, back_ns = MasterKeyring.new(NOW_NS).derive(RUN, [Role.CONTROLLER]), NOW_NS - 12 * 3_600 * SECOND_NS
    sealed = Sealer(keyring, Role.CONTROLLER, "controller-0", clock_ns=lambda: back_ns).seal(command())

    opened = Opener(keyring, guard=None, accept=list(Domain)).open(sealed, ENTRY, back_ns // 1_000_000)

    assert opened.clock_suspect  # the stream goes on from its newest entry, half a day ahead


def test_a_retired_key_seals_and_opens_nothing_of_a_later_time() -> None:
    data = Sealer(CONTROLLER, Role.CONTROLLER, "c", clock_ns=lambda: NOW_NS).seal(command())
    rotated = MASTER.rotate(NOW_NS - SECOND_NS)
    keyring = rotated.retire(KEY_ID, NOW_NS + SECOND_NS).derive(RUN, [Role.CONTROLLER, Role.COORDINATOR])

    assert opener(keyring).open(data, ENTRY, NOW_MS).message == command()
    assert refusal(opener(keyring), data, f"{NOW_MS + 1000}-0", NOW_MS + 1000) == "REASON_UNKNOWN_KEY"


def test_the_last_valid_key_is_retired_only_by_force() -> None:
    waiting = MASTER.rotate(NOW_NS, lead_s=10)

    with pytest.raises(SettingError, match="rotate first, or --force"):
        waiting.retire(KEY_ID, NOW_NS)
    with pytest.raises(SettingError, match="not retired by then already"):
        waiting.retire(KEY_ID, NOW_NS + 400 * 86_400 * SECOND_NS)
    with pytest.raises(SettingError, match=f"expected one of {KEY_ID:08x}"):
        MASTER.retire(KEY_ID ^ 1, NOW_NS)

    assert waiting.retire(KEY_ID, NOW_NS + 10 * SECOND_NS).validities[0].not_after_ns == NOW_NS + 10 * SECOND_NS
    assert not MASTER.retire(KEY_ID, NOW_NS, force=True).validities[0].holds_at(NOW_NS)


def test_with_every_key_retired_nothing_is_sealed() -> None:
    with pytest.raises(SettingError, match=f"keyring is 'of {RUN}'; .* valid at 2[0-9-]* [0-9:]* UTC: .* retired"):
        CONTROLLER.seal_key(Domain.COMMAND, Role.CONTROLLER, NOW_NS + 400 * 86_400 * SECOND_NS)


def test_what_shows_the_frames_of_a_refusal_shows_no_signing_key() -> None:
    big = command()
    big.annotations["note"] = "x" * COMMAND_CAP_BYTES
    key = CONTROLLER.signing_key(KEY_ID, Role.CONTROLLER)
    assert key is not None

    with pytest.raises(RefusedError) as refused:
        controller().seal(big)

    shown = "".join(TracebackException.from_exception(refused.value, capture_locals=True).format())
    assert "line = " in shown and written(bytes(key)) not in shown.replace("\\'", "'")


def written(value: bytes) -> str:
    """As it stands in the repr of something that holds it."""
    return repr(value)[2:-1].replace("\\'", "'")


def test_the_table_of_roles_in_the_docs_is_the_one_in_force() -> None:
    page = (Path(__file__).parents[1] / "docs" / "security.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]

    for role, seals, opens in rows[1:]:
        named = set() if seals == "nothing" else {Domain[name.upper()] for name in seals.split(", ")}
        assert named == SEALS[Role(role)]
        pairs = [entry.split("/") for entry in opens.split(", ")]
        assert {(Domain[domain.upper()], Role(sealing)) for domain, sealing in pairs} == OPENS[Role(role)]
    assert [row[0] for row in rows[1:]] == [role.value for role in Role]


@pytest.mark.parametrize(
    ("entry_s", "told"),
    [
        (0, "was not valid yet at 1970-01-01 00:00:00 UTC"),
        (4_102_444_800, "had ended by 2100-01-01 00:00:00 UTC"),
        (2**64 // 1_000, "had ended by 9999-12-31 23:59:59 UTC"),
    ],
)
def test_a_key_out_of_its_time_is_refused_with_the_time_as_people_read_it(entry_s: int, told: str) -> None:
    with pytest.raises(RefusedError, match=f"key {KEY_ID:08x} {told}"):
        CONTROLLER.open_key(KEY_ID, Domain.COMMAND, Role.CONTROLLER, entry_s * SECOND_NS)
