"""`esper keys` makes files that open each other's messages, shows no secret, and says plainly what is wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.main import app as esper
from esper.leyline.keyring import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from tests.sealed import command

RUN = "digits-0a1b2c3d"


@pytest.fixture
def master(tmp_path: Path) -> Path:
    path = tmp_path / "master.json"
    assert said("new", path)[0] == 0
    return path


def said(*words: str | Path) -> tuple[int, str]:
    """Exit status and everything written."""
    result = CliRunner().invoke(esper, ["keys", *map(str, words)])
    return result.exit_code, result.output


def derived(master: Path, role: Role) -> RoleKeyring:
    out = master.with_name(f"{role.value}.json")
    assert said("derive", master, "--run", RUN, "--role", role.value, "--out", out)[0] == 0
    return RoleKeyring.load(out)


def opened(keyring: RoleKeyring, data: bytes) -> object:
    now_ms = time.time_ns() // 1_000_000
    return Opener(keyring, guard=None, accept=[Domain.COMMAND]).open(data, f"{now_ms}-0", now_ms).message


def test_derived_keyrings_open_each_others_messages(master: Path) -> None:
    controller, worker = derived(master, Role.CONTROLLER), derived(master, Role.WORKER)

    data = Sealer(controller, Role.CONTROLLER, "c").seal(command())

    assert opened(worker, data) == command()


def test_files_are_for_their_owner_alone(master: Path) -> None:
    derived(master, Role.WORKER)

    assert {path.stat().st_mode & 0o777 for path in master.parent.iterdir()} == {0o600}


def test_one_keyring_may_be_for_several_roles(master: Path) -> None:
    out = master.with_name("both.json")

    status, _ = said("derive", master, "--run", RUN, "--role", "controller", "--role", "optimizer", "--out", out)

    assert status == 0
    assert RoleKeyring.load(out).roles == (Role.CONTROLLER, Role.OPTIMIZER)


def test_rotation_keeps_the_old_key_until_the_new_one_takes_over(master: Path) -> None:
    old = derived(master, Role.CONTROLLER)

    said("rotate", master, "--lead", "600")
    status, listing = said("list", master)

    assert status == 0
    assert [line.split()[1] for line in listing.splitlines()] == ["valid", "waiting"]
    assert opened(derived(master, Role.WORKER), Sealer(old, Role.CONTROLLER, "c").seal(command())) == command()


def test_the_listing_shows_ids_and_no_secret(master: Path) -> None:
    derived(master, Role.WORKER)
    row = json.loads(master.read_text())["keys"][0]

    for path in (master, master.with_name("worker.json")):
        status, listing = said("list", path, "--json")

        assert status == 0
        assert json.loads(listing)["id"] == f"{row['id']:08x}"
        assert row["secret"] not in listing


def test_a_keyring_that_is_there_is_never_written_over(master: Path) -> None:
    before = master.read_bytes()

    status, output = said("new", master)

    assert (status, len(output.splitlines())) == (2, 1)
    assert "not there yet" in output
    assert master.read_bytes() == before


def test_bad_input_is_one_line_and_status_two(master: Path) -> None:
    missing = said("list", master.with_name("none.json"))
    master.chmod(0o644)
    readable = said("derive", master, "--run", RUN, "--role", "worker", "--out", master.with_name("w.json"))
    no_role = said("derive", master, "--run", RUN, "--role", "emperor", "--out", master.with_name("w.json"))

    assert [status for status, _ in (missing, readable, no_role)] == [2, 2, 2]
    assert "No such file" in missing[1]
    assert "only its owner can read" in readable[1]
    assert "emperor" in no_role[1]
    assert len(missing[1].splitlines()) == len(readable[1].splitlines()) == 1
