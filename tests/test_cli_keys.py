"""`esper keys` makes files that open each other's messages, shows no secret, and says plainly what is wrong."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.cli.main import app as esper
from esper.errors import RefusedError
from esper.leyline.keys.keyring import MasterKeyring, RoleKeyring
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


@pytest.mark.parametrize("run", ["", "../../etc", "a b", "a\x1b[2J", "é", "a" * 50])
def test_keys_are_made_for_no_run_that_can_not_be_one(master: Path, run: str) -> None:
    """A run's id stands in keys of Redis, in names of its users, and in paths."""
    status, told = said("derive", master, "--run", run, "--role", "worker", "--out", master.with_name("o.json"))

    assert (status, master.with_name("o.json").exists()) == (2, False)
    assert "; expected an id of 1 to 49 letters, digits, dots, dashes or underscores" in told


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


def test_every_keyring_of_a_run_is_written_by_one_command(master: Path) -> None:
    keys = master.with_name("keys")

    status, told = said("derive", master, "--run", RUN, "--into", keys, "--json")

    assert status == 0
    assert keys.stat().st_mode & 0o777 == 0o700
    written = {path.stem: {str(role) for role in RoleKeyring.load(path).roles} for path in keys.iterdir()}
    alone = {name: {name} for name in ("worker", "coordinator", "regional", "global", "observer")}
    assert written == alone | {"controller": {"controller", "optimizer"}}
    assert {row["keyring"] for row in map(json.loads, told.splitlines())} == {str(path) for path in keys.iterdir()}
    data = Sealer(RoleKeyring.load(keys / "controller.json"), Role.CONTROLLER, "c").seal(command())
    assert opened(derived(master, Role.WORKER), data) == command()


def test_all_keyrings_are_written_or_none(master: Path) -> None:
    keys = master.with_name("keys")
    keys.mkdir()
    (keys / "observer.json").hardlink_to(master)
    before = master.read_bytes()

    over = said("derive", master, "--run", RUN, "--into", keys)
    beside = said("derive", master, "--run", RUN, "--into", keys, "--role", "worker")
    nowhere = said("derive", master, "--run", RUN, "--into", master)
    no_role = said("derive", master, "--run", RUN, "--out", keys / "worker.json")
    no_file = said("derive", master, "--run", RUN, "--role", "worker")

    assert [status for status, _ in (over, beside, nowhere, no_role, no_file)] == [2] * 5
    assert "another file than the master keyring" in over[1] and "no --role and no --out" in beside[1]
    assert "a folder, or where one can be made" in nowhere[1]
    assert "--role is not set" in no_role[1] and "--out is not set" in no_file[1]
    assert [path.name for path in keys.iterdir()] == ["observer.json"] and master.read_bytes() == before


def test_rotation_keeps_the_old_key_until_the_new_one_takes_over(master: Path) -> None:
    old = derived(master, Role.CONTROLLER)

    said("rotate", master, "--lead", "600")
    status, listing = said("list", master)

    assert status == 0
    assert [line.split()[1] for line in listing.splitlines()] == ["valid", "waiting"]
    assert opened(derived(master, Role.WORKER), Sealer(old, Role.CONTROLLER, "c").seal(command())) == command()


@pytest.mark.parametrize("lead", ["0", "1"])
def test_a_lead_that_processes_would_miss_is_refused_unless_forced(master: Path, lead: str) -> None:
    before = master.read_bytes()

    status, output = said("rotate", master, "--lead", lead)
    assert (status, len(output.splitlines())) == (2, 1)
    assert "at least 2 seconds" in output
    assert "--force" in output
    assert master.read_bytes() == before

    assert said("rotate", master, "--lead", lead, "--force")[0] == 0
    assert said("rotate", master, "--lead", "2")[0] == 0
    assert len(listed(master)) == 3


def test_a_lead_that_would_leave_a_time_without_any_key_is_refused_unless_forced(master: Path) -> None:
    row = json.loads(master.read_text())
    row["keys"][0]["not_after_ns"] = time.time_ns() + 600 * 1_000_000_000
    master.write_text(json.dumps(row))

    status, output = said("rotate", master, "--lead", "3600")

    assert (status, len(output.splitlines())) == (2, 1)
    assert "--lead is '3600'; expected at most the 5" in output
    assert len(listed(master)) == 1
    assert said("rotate", master, "--lead", "60")[0] == 0
    assert said("rotate", master, "--lead", "99999999999")[0] == 2


def test_a_role_keyring_is_not_written_over_the_master_keyring(master: Path) -> None:
    before = master.read_bytes()

    status, output = said("derive", master, "--run", RUN, "--role", "worker", "--out", master)

    assert (status, "another file than the master keyring" in output) == (2, True)
    assert master.read_bytes() == before


def test_the_listing_shows_ids_and_no_secret(master: Path) -> None:
    derived(master, Role.WORKER)
    row = json.loads(master.read_text())["keys"][0]

    for path in (master, master.with_name("worker.json")):
        status, listing = said("list", path, "--json")

        assert status == 0
        assert json.loads(listing)["id"] == f"{row['id']:08x}"
        assert row["secret"] not in listing


def listed(master: Path) -> list[tuple[str, str]]:
    """Ids and states."""
    return [(row["id"], row["state"]) for row in map(json.loads, said("list", master, "--json")[1].splitlines())]


def test_a_retired_key_is_listed_as_such_and_opens_nothing_more(master: Path) -> None:
    old = derived(master, Role.CONTROLLER)
    said("rotate", master, "--lead", "0", "--force")
    [(first, _), _] = listed(master)

    status, output = said("retire", first, master, "--now", "--json")

    assert (status, json.loads(output)["state"]) == (0, "retired")
    assert [state for _, state in listed(master)] == ["retired", "valid"]
    with pytest.raises(RefusedError, match="had ended by"):
        opened(derived(master, Role.WORKER), Sealer(old, Role.CONTROLLER, "c").seal(command()))


def test_a_key_can_be_retired_at_a_time_to_come(master: Path) -> None:
    said("rotate", master, "--lead", "0", "--force")
    [(first, _), _] = listed(master)

    in_an_hour = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)

    status, output = said(
        "retire", first, master, "--at", in_an_hour.astimezone(timezone(timedelta(hours=9))).isoformat()
    )

    assert (status, len(output.splitlines())) == (0, 1)
    assert f"retired from {in_an_hour:%Y-%m-%d %H:%M:%S} UTC on" in output
    assert [state for _, state in listed(master)] == ["valid", "valid"]


def test_the_last_valid_key_is_kept_unless_forced(master: Path) -> None:
    [(only, _)] = listed(master)

    status, output = said("retire", only, master)
    forced, _ = said("retire", only, master, "--force")

    assert (status, len(output.splitlines())) == (2, 1)
    assert "rotate first, or --force" in output
    assert (forced, listed(master)) == (0, [(only, "retired")])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nosuch",), "eight hex digits"),
        (("00000000",), "expected one of"),
        (("{key}", "--at", "tomorrow"), "a time such as"),
        (("{key}", "--at", "2027-01-01", "--now"), "no --now beside it"),
        (("{key}", "--at", "2099-01-01"), "not retired by then already"),
    ],
)
def test_what_cannot_be_retired_is_one_line_and_changes_nothing(
    master: Path, words: tuple[str, ...], told: str
) -> None:
    [(only, _)], before = listed(master), master.read_bytes()

    status, output = said("retire", *(word.replace("{key}", only) for word in words), "--force", master)

    assert (status, len(output.splitlines())) == (2, 1)
    assert told in output
    assert master.read_bytes() == before


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


def test_role_keyrings_of_a_folder_are_renewed_with_the_rotation(master: Path) -> None:
    before = derived(master, Role.CONTROLLER), derived(master, Role.WORKER)

    status, out = said("rotate", master, "--lead", "60", "--renew", master.parent)
    after = [RoleKeyring.load(master.with_name(f"{role.value}.json")) for role in (Role.CONTROLLER, Role.WORKER)]

    assert status == 0 and out.endswith("derived anew: 2 role keyrings\n")
    assert [len(one.validities) for one in (*before, *after)] == [1, 1, 2, 2]
    assert [(one.run_id, one.roles) for one in after] == [(one.run_id, one.roles) for one in before]
    assert opened(after[1], Sealer(before[0], Role.CONTROLLER, "c").seal(command())) == command()
    [new] = {one.key_id for one in after[0].validities} - {one.key_id for one in before[0].validities}
    assert said("retire", f"{new:08x}", master, "--renew", master.parent)[0] == 0
    retired = {one.key_id: one for one in RoleKeyring.load(master.with_name("worker.json")).validities}[new]
    assert retired.not_after_ns <= time.time_ns()


def test_a_retirement_that_renewed_no_keyring_names_how_and_is_made_good_by_a_repeat(master: Path) -> None:
    derived(master, Role.WORKER)
    [first] = MasterKeyring.load(master).validities
    said("rotate", master, "--lead", "0", "--force")

    told = said("retire", f"{first.key_id:08x}", master)
    missed = RoleKeyring.load(master.with_name("worker.json")).validities
    again = said("retire", f"{first.key_id:08x}", master, "--renew", master.parent)

    assert told[1].endswith(f"anew: esper keys derive {master} --run RUN --into DIR\n")
    assert missed == [first]
    assert again[0] == 0 and again[1].endswith("derived anew: 1 role keyring\n")
    ids = {one.key_id: one.not_after_ns for one in RoleKeyring.load(master.with_name("worker.json")).validities}
    assert len(ids) == 2 and ids[first.key_id] < first.not_after_ns


def test_keyrings_of_another_master_are_not_renewed_and_nothing_is_rotated(master: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert said("new", other / "master.json")[0] == 0
    derived(other / "master.json", Role.WORKER)
    before = master.read_bytes(), (other / "worker.json").read_bytes()

    answers = [said("rotate", master, "--renew", folder) for folder in (other, master.parent)]

    assert [status for status, _ in answers] == [2, 2]
    assert "it holds other keys" in answers[0][1] and "a folder with role keyrings" in answers[1][1]
    assert (master.read_bytes(), (other / "worker.json").read_bytes()) == before
