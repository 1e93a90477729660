"""A process that lives for long follows its keyring's file: rotated and retired keys are honoured without a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from esper.errors import RefusedError, SettingError
from esper.leyline.keys.keyring import SECOND_NS, MasterKeyring, RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.runtime.keys import SOONEST_S, KeyFile, kept_current
from tests.sealed import ENTRY, MASTER, NOW_MS, NOW_NS, RUN, command, refusal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(MASTER, tmp_path / "both.json")
    return tmp_path / "both.json"


def write(master: MasterKeyring, path: Path, *roles: Role, run: str = RUN) -> None:
    master.derive(run, roles or [Role.CONTROLLER, Role.COORDINATOR]).save(path)


def sealer(keyring: RoleKeyring, at_ns: int = NOW_NS) -> Sealer:
    return Sealer(keyring, Role.CONTROLLER, "c", clock_ns=lambda: at_ns)


def opener(keyring: RoleKeyring) -> Opener:
    return Opener(keyring, guard=None, accept=[Domain.COMMAND])


def test_a_sealer_and_an_opener_that_are_at_work_take_up_a_new_key(path: Path) -> None:
    keyring = RoleKeyring.load(path)
    file, seals, opens = KeyFile(keyring, path), sealer(keyring), opener(keyring)
    before = seals.seal(command())
    assert opens.open(before, ENTRY, NOW_MS).message == command()

    rotated = MASTER.rotate(NOW_NS)
    write(rotated, path)
    assert file.look()
    after = seals.seal(command())

    assert opens.open(after, ENTRY, NOW_MS).header.key_id == rotated.validities[1].key_id
    assert opens.open(before, ENTRY, NOW_MS).header.key_id == rotated.validities[0].key_id


def test_a_key_that_is_retired_while_in_use_opens_and_seals_no_more(path: Path) -> None:
    keyring = RoleKeyring.load(path)
    file, seals, opens = KeyFile(keyring, path), sealer(keyring), opener(keyring)
    data = seals.seal(command())
    opens.open(data, ENTRY, NOW_MS)

    write(MASTER.retire(MASTER.validities[0].key_id, NOW_NS - SECOND_NS, force=True), path)
    file.look()

    assert refusal(opens, data) == "REASON_UNKNOWN_KEY"
    assert opens.open(data, f"{NOW_MS - 2_000}-0", NOW_MS).message == command()
    with pytest.raises(SettingError, match="retired"):
        seals.seal(command())


def test_an_entry_is_judged_by_the_key_that_was_valid_at_its_time(path: Path) -> None:
    write(MASTER.rotate(NOW_NS, overlap_s=10), path)
    keyring = RoleKeyring.load(path)
    old = sealer(MASTER.derive(RUN, [Role.CONTROLLER]), NOW_NS + 9 * SECOND_NS).seal(command())
    opens = opener(keyring)

    for _ in range(2):
        assert opens.open(old, f"{NOW_MS + 9_999}-0", NOW_MS + 60_000).message == command()
        assert refusal(opens, old, f"{NOW_MS + 10_000}-0", NOW_MS + 60_000) == "REASON_UNKNOWN_KEY"


def test_a_file_that_others_could_read_is_taken_up_once_they_no_longer_can(path: Path) -> None:
    keyring = RoleKeyring.load(path)
    file = KeyFile(keyring, path)
    file.look()
    write(MASTER.rotate(NOW_NS), path)
    path.chmod(0o644)
    assert not file.look()

    path.chmod(0o600)

    assert file.look()
    assert len(keyring.validities) == 2


def test_a_file_in_use_that_others_come_to_read_is_told_once_each_time(path: Path) -> None:
    keyring = RoleKeyring.load(path)
    file = KeyFile(keyring, path)
    file.look()

    with capture_logs() as events:
        for mode in (0o644, 0o644, 0o600, 0o644):
            path.chmod(mode)
            assert not file.look()

    assert [event["event"] for event in events] == ["keyring.refused"] * 2
    assert "mode 0600, not 0644" in events[0]["why"]
    assert len(keyring.validities) == 1


@pytest.mark.parametrize("content", ["", "{", '{"esper_keyring": "role", "version": 1}'])
def test_a_torn_file_is_told_once_and_what_is_held_goes_on(path: Path, content: str) -> None:
    keyring = RoleKeyring.load(path)
    file, opens = KeyFile(keyring, path), opener(keyring)
    file.look()
    path.write_text(content)

    with capture_logs() as events:
        assert not file.look()
        assert not file.look()

    assert [event["event"] for event in events] == ["keyring.refused"]
    assert opens.open(sealer(keyring).seal(command()), ENTRY, NOW_MS).message == command()


def test_keys_of_another_run_or_role_are_not_taken_up(path: Path) -> None:
    keyring = RoleKeyring.load(path)
    file = KeyFile(keyring, path)

    with capture_logs() as events:
        write(MASTER.rotate(NOW_NS), path, run="other-00000000")
        file.look()
        write(MASTER.rotate(NOW_NS), path, Role.CONTROLLER)
        file.look()

    assert [event["event"] for event in events] == ["keyring.refused"] * 2
    assert len(keyring.validities) == 1


def test_a_file_that_is_away_changes_nothing(path: Path) -> None:
    keyring = RoleKeyring.load(path)
    file = KeyFile(keyring, path)
    path.unlink()

    with capture_logs() as events:
        assert not file.look()

    assert not events
    with pytest.raises(RefusedError):
        keyring.open_key(1, Domain.COMMAND, Role.CONTROLLER, NOW_NS)


async def test_a_process_looks_again_while_it_runs(path: Path) -> None:
    keyring = RoleKeyring.load(path)

    async with asyncio.timeout(120), kept_current(keyring, path, every_s=0.001):
        write(MASTER.rotate(NOW_NS), path)
        while keyring.version == 0:
            await asyncio.sleep(0)

    assert len(keyring.validities) == 2


async def test_who_meets_a_new_key_before_it_looks_again_looks_at_once(path: Path) -> None:
    keyring = RoleKeyring.load(path)
    opens = opener(keyring)

    async with asyncio.timeout(120), kept_current(keyring, path, every_s=3_600.0):
        write(MASTER.rotate(NOW_NS), path)
        await asyncio.sleep(SOONEST_S)
        sealed = sealer(RoleKeyring.load(path)).seal(command())

        assert opens.open(sealed, ENTRY, NOW_MS).message == command()


def test_a_flood_under_unknown_keys_has_the_file_looked_at_now_and_then(path: Path) -> None:
    keyring, now_s = RoleKeyring.load(path), [0.0]
    file = KeyFile(keyring, path, clock=lambda: now_s[0])
    keyring.follow(file.look_soon)
    opens, stranger = opener(keyring), sealer(MasterKeyring.new(NOW_NS).derive(RUN, [Role.CONTROLLER]))

    assert refusal(opens, stranger.seal(command())) == "REASON_UNKNOWN_KEY"
    write(MASTER.rotate(NOW_NS), path)
    assert refusal(opens, stranger.seal(command())) == "REASON_UNKNOWN_KEY"
    assert len(keyring.validities) == 1
    now_s[0] += SOONEST_S
    assert refusal(opens, stranger.seal(command())) == "REASON_UNKNOWN_KEY"

    assert len(keyring.validities) == 2
