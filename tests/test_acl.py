"""The ACL file: each role touches its own streams and no more, as a real server judges it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import esper
from esper.bus import connect, embedded
from esper.bus.acl import ADMIN, USERS, enforceable, user_name
from esper.bus.client.credentials import PASSWORD_FILE, completed
from esper.bus.embedded import EmbeddedRedis
from esper.bus.faults import ForbiddenError, NoIdLeftError
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.bus.names import RUNS_KEY, STREAMS, key, region_key
from esper.cli.main import app
from esper.doctor.facts import DefaultUser
from esper.doctor.rights import rights_of
from esper.doctor.run_checks import rights_finding
from esper.doctor.users import default_user
from esper.errors import BusError
from esper.leyline.entries import LAST_ID
from esper.leyline.kinds import OPENS, SEALS, Domain, Role
from tests.acl_kit import RUN, environment, path_of
from tests.server_kit import newer_server

OTHER = "toy-ffffffff"
ALL = {row.name for row in STREAMS}
ADDS = {
    "worker": {"receipts", "votes", "heartbeats", "emergency", "telemetry", "state", "dead"},
    "coordinator": {"receipts", "decisions", "dead"},
    "regional": {"regional", "dead"},
    "global": {"global", "dead"},
    "controller": {"commands", "optimizer"},
    "observer": set(),
    "exporter": set(),
    "operator": {"commands", "optimizer"},
}
READS = {
    "worker": {"commands", "optimizer", "decisions", "heartbeats"},
    "coordinator": {"commands", "optimizer", "votes", "heartbeats", "decisions", "receipts", "emergency"},
    "regional": {"telemetry"},
    "global": {"regional"},
    "controller": ALL - {"commands", "optimizer", "votes", "dead"},
    "observer": ALL,
    "exporter": {"global"},
    "operator": ALL,
}
SHARED = {"coordinator": {"commands", "optimizer", "votes", "heartbeats"}, "regional": {"telemetry"}}
GROUPS = {**SHARED, "worker": {"commands", "optimizer", "decisions"}, "global": {"regional"}}
TRIMS = {
    "coordinator": ALL - {"telemetry", "regional", "global"},
    "regional": {"telemetry"},
    "global": {"regional", "global"},
}
DELETES = {"coordinator": SHARED["coordinator"], "operator": {"dead"}}
DOMAINS = {
    **{"commands": Domain.COMMAND, "optimizer": Domain.OPTIMIZER, "votes": Domain.VOTE, "decisions": Domain.DECISION},
    **{"receipts": Domain.RECEIPT, "telemetry": Domain.TELEMETRY, "regional": Domain.AGGREGATE},
    **{"global": Domain.AGGREGATE, "emergency": Domain.EMERGENCY, "state": Domain.STATE},
    **{"heartbeats": Domain.HEARTBEAT},
}
RIGHTS: dict[str, tuple[dict[str, set[str]], tuple[str, ...]]] = {
    "adds": (ADDS, ("XADD", "@", "*", "m", "x")),
    "reads": (READS, ("XRANGE", "@", "-", "+")),
    "reads by group": (GROUPS, ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "@", ">")),
    "acknowledges": (GROUPS, ("XACK", "@", "g", "1-0")),
    "trims": (TRIMS, ("XTRIM", "@", "MAXLEN", "0")),
    "deletes": (DELETES, ("XDEL", "@", "1-0")),
}
NEVER = (
    *(("CONFIG", "GET", "*"), ("CONFIG", "SET", "save", ""), ("ACL", "LIST"), ("FLUSHALL",), ("KEYS", "*")),
    *(("SHUTDOWN",), ("MONITOR",), ("DEBUG", "SLEEP", "0"), ("CLIENT", "KILL", "ID", "1"), ("REPLICAOF", "NO", "ONE")),
    *(("SUBSCRIBE", "c"), ("PUBLISH", "c", "m"), ("SCRIPT", "FLUSH"), ("MODULE", "LIST"), ("FUNCTION", "LIST")),
)


@pytest.fixture(scope="module")
def server(short_directory: Path) -> Iterator[EmbeddedRedis]:
    """It has an ACL file that lets everybody in; the test's run is added to it, and it is told to load it anew."""
    directory = short_directory / "acl"
    directory.mkdir()
    (directory / "users.acl").write_text("user default on nopass ~* &* +@all\n")
    options = {"aclfile": str(directory / "users.acl")}
    with EmbeddedRedis(directory / "data", binary=newer_server(), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def variables(server: EmbeddedRedis, short_directory: Path) -> dict[str, dict[str, str]]:
    """By role, what its process finds in its environment."""
    directory = short_directory / "acl"
    for run in (OTHER, RUN):
        result = CliRunner().invoke(app, ["acl", run, "--out", str(directory / "users.acl")])
        assert result.exit_code == 0, result.output
    asked(server, "ACL LOAD")
    return {role: environment(path_of(directory, role)) for role in (*USERS, ADMIN)}


def asked(server: EmbeddedRedis, words: str) -> None:
    assert embedded.asked(server.socket, words.encode()).startswith(b"+OK")


@pytest.fixture
async def admin(server: EmbeddedRedis, variables: dict[str, dict[str, str]]) -> AsyncIterator[connect.Redis]:
    async with connect.writer(completed(server.url, variables[ADMIN])) as redis:
        yield redis


async def may(admin: connect.Redis, user: str, *words: str, run: str = RUN) -> bool:
    """Whether the server would let the user of the run do this."""
    reply: Any = await admin.execute_command("ACL", "DRYRUN", user_name(run, user), *words)
    return bool(reply == b"OK")


def on(stream: str, run: str = RUN) -> str:
    regional = next(row.regional for row in STREAMS if row.name == stream)
    return region_key(run, "r0", stream) if regional else key(run, stream)


def aimed(words: tuple[str, ...], place: str) -> tuple[str, ...]:
    return tuple(place if word == "@" else word for word in words)


@pytest.mark.parametrize("role", ["worker", "coordinator", "regional", "observer"])
async def test_the_doctor_finds_what_a_user_may_do_and_leaves_nothing_behind(
    server: EmbeddedRedis, variables: dict[str, dict[str, str]], admin: connect.Redis, role: str
) -> None:
    async with connect.writer(completed(server.url, variables[role])) as redis:
        found = await rights_of(redis, RUN, user_name(RUN, role))

    assert ({*found.adds}, {*found.reads}) == (ADDS[role], READS[role])
    assert rights_finding(role, found).status == "ok"
    assert [key async for key in admin.scan_iter(match="esper:*doctor*")] == []


@pytest.mark.parametrize(("role", "all_rights"), [("observer", None), (ADMIN, True)])
async def test_the_doctor_finds_that_nobody_is_let_in_without_a_name(
    server: EmbeddedRedis, variables: dict[str, dict[str, str]], role: str, all_rights: bool | None
) -> None:
    async with connect.writer(completed(server.url, variables[role])) as redis:
        found = await default_user(redis)

    assert found == DefaultUser(lets_in=False, all_rights=all_rights)


@pytest.mark.parametrize("told", [{}, {"ESPER_REDIS_PASSWORD": "another"}])
def test_the_doctor_says_what_somebody_needs_who_is_not_let_in(
    server: EmbeddedRedis, variables: dict[str, dict[str, str]], told: dict[str, str]
) -> None:
    given = {**variables["observer"], **told} if told else {}

    result = CliRunner().invoke(app, ["doctor", "--redis", server.url], env=given)

    assert result.exit_code == 1
    assert "expected a user who is let in" in result.stdout
    assert "-> give ESPER_REDIS_USERNAME and ESPER_REDIS_PASSWORD as passwords/RUN-observer.env" in result.stdout


@pytest.mark.parametrize("right", RIGHTS)
async def test_each_user_has_what_its_role_needs_and_no_more(admin: connect.Redis, right: str) -> None:
    expected, words = RIGHTS[right]

    found = {user: {name for name in ALL if await may(admin, user, *aimed(words, on(name)))} for user in USERS}

    assert found == {user: expected.get(user, set()) for user in USERS}


async def test_no_user_reaches_a_stream_of_another_run(admin: connect.Redis) -> None:
    tries = [aimed(words, on(name, OTHER)) for _, words in RIGHTS.values() for name in ALL]

    assert [(user, words) for user in USERS for words in tries if await may(admin, user, *words)] == []


async def test_no_user_of_a_run_commands_the_server(admin: connect.Redis) -> None:
    assert [(user, words) for user in USERS for words in NEVER if await may(admin, user, *words)] == []


def test_what_is_granted_is_what_keys_seal_and_open() -> None:
    for user, names in USERS.items():
        roles = [Role(name) for name in names]
        seals = {domain for role in roles for domain in SEALS[role]}
        opens = {domain for role in roles for domain, _ in OPENS[role]} | seals
        assert {DOMAINS[name] for name in ADDS[user] - {"dead"}} <= seals
        assert {DOMAINS[name] for name in READS[user] - {"dead"}} <= opens or user == "exporter"
        assert seals <= {DOMAINS[name] for name in ADDS[user] - {"dead"}}


async def test_every_key_that_the_code_names_is_granted_to_somebody(admin: connect.Redis) -> None:
    named = re.compile(r"\b(?:names\.)?(?:region_)?key\([^()]*?f?\"([a-z]+)[^\"]*\"\)")
    files = [path for path in Path(esper.__file__).parent.rglob("*.py") if path.name != "acl.py"]
    source = "".join(path.read_text() for path in files if "bench" not in path.parts)
    records = {RUNS_KEY, *(key(RUN, name) for name in set(named.findall(source)) - ALL)}
    one_of_many = {key(RUN, "windows"): key(RUN, "windows:worker/w"), key(RUN, "exported"): key(RUN, "exported:e")}

    lonely = [
        name
        for record in records
        if not [
            user
            for user in USERS
            if await may(admin, user, "HGETALL", name := one_of_many.get(record, record))
            or await may(admin, user, "XRANGE", name, "-", "+")
        ]
    ]

    assert lonely == []
    assert len(records) >= 7


async def test_an_observer_can_write_nothing_not_even_from_a_script(
    server: EmbeddedRedis, variables: dict[str, dict[str, str]], admin: connect.Redis
) -> None:
    tries = [aimed(words, on(name)) for name in ALL for words in (RIGHTS["adds"][1], RIGHTS["trims"][1])]
    tries += [("SET", key(RUN, "settled:x"), "1"), ("HSET", key(RUN, "totals"), "f", "1"), ("DEL", key(RUN, "totals"))]
    tries += [("XGROUP", "CREATE", on("votes"), "g", "0", "MKSTREAM")]
    script = "return redis.call(unpack(ARGV))"

    async with connect.writer(completed(server.url, variables["observer"])) as redis:
        for words in tries:
            for command in (words, ("EVAL", script, 1, words[2 if words[0] == "XGROUP" else 1], *words)):
                with pytest.raises(BusError, match=r"permission|The user executing the script can't"):
                    await redis.execute_command(*command)

    assert await admin.execute_command("DBSIZE") == 0


async def test_a_user_of_a_file_is_let_in_and_nothing_is_said_of_it(
    server: EmbeddedRedis, variables: dict[str, dict[str, str]], short_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = path_of(short_directory / "acl", "worker")

    async with connect.writer(completed(server.url, {PASSWORD_FILE: str(file)})) as redis:
        await redis.execute_command("PING")

    assert caplog.messages == []


async def test_a_user_who_may_not_do_something_is_named_without_the_password(
    server: EmbeddedRedis, variables: dict[str, dict[str, str]], short_directory: Path
) -> None:
    file = path_of(short_directory / "acl", "worker")

    async with connect.writer(completed(server.url, {PASSWORD_FILE: str(file)})) as redis:
        with pytest.raises(ForbiddenError, match=f"refuses the user of {file}: .*; expected the user of a role"):
            await redis.execute_command("XADD", on("commands"), "*", "m", "x")
    async with connect.writer(completed(server.url, variables["worker"])) as redis:
        with pytest.raises(ForbiddenError, match=f"refuses user '{user_name(RUN, 'worker')}': ") as refused:
            await redis.execute_command("XADD", on("commands"), "*", "m", "x")

    assert variables["worker"]["ESPER_REDIS_PASSWORD"] not in str(refused.value)


async def test_nobody_is_let_in_without_a_name(server: EmbeddedRedis, variables: dict[str, dict[str, str]]) -> None:
    async with connect.writer(server.url) as redis:
        with pytest.raises(BusError, match="refuses us: Authentication required"):
            await redis.execute_command("PING")


async def test_a_server_that_starts_again_with_the_file_has_all_that_scripts_wrote(short_directory: Path) -> None:
    directory = short_directory / "again"
    directory.mkdir()
    assert CliRunner().invoke(app, ["acl", RUN, "--out", str(directory / "users.acl")]).exit_code == 0
    options = {"aclfile": str(directory / "users.acl"), "appendfsync": "always"}
    coordinator, admin = (environment(path_of(directory, role)) for role in ("coordinator", ADMIN))
    settlement = Settlement()
    settlement.write(key(RUN, "decisions"), b"decided")
    settlement.put(key(RUN, "windows:coordinator"), {"seen": b"1"})

    with EmbeddedRedis(directory / "data", binary=newer_server(), options=options) as first:
        async with connect.writer(completed(first.url, coordinator)) as redis:
            await Outbox(redis).settle(settlement)
    with EmbeddedRedis(directory / "data", binary=newer_server(), options=options) as again:
        async with connect.writer(completed(again.url, admin)) as redis:
            await connect.wait_ready(redis)
            entries = await redis.xlen(key(RUN, "decisions"))
            fields = await redis.execute_command("HGETALL", key(RUN, "windows:coordinator"))

    assert (entries, fields) == (1, {b"seen": b"1"})


@pytest.mark.parametrize(
    ("role", "stream"),
    [("coordinator", "decisions"), ("worker", "receipts"), ("regional", "regional"), ("global", "global")],
)
async def test_a_user_whose_dead_letters_have_no_id_left_writes_nothing_until_they_have(
    server: EmbeddedRedis, variables: dict[str, dict[str, str]], admin: connect.Redis, role: str, stream: str
) -> None:
    settlement = Settlement()
    settlement.write(on(stream), b"said")
    settlement.write(on("dead"), b"refused")
    await admin.xadd(on("dead"), {"m": b"junk"}, id=LAST_ID)

    async with connect.writer(completed(server.url, variables[role])) as redis:
        outbox = Outbox(redis, patience_s=0.0)
        with pytest.raises(NoIdLeftError):
            await outbox.settle(settlement)
        before = await admin.xlen(on(stream)), await admin.xlen(on("dead"))
        await admin.delete(on("dead"))
        await outbox.settle(settlement)

    after = await admin.xlen(on(stream)), await admin.xlen(on("dead"))
    await admin.flushall()
    assert (before, after) == ((0, 1), (1, 1))


def test_the_file_holds_hashes_and_only_its_owner_reads_the_passwords(
    variables: dict[str, dict[str, str]], short_directory: Path
) -> None:
    text = (short_directory / "acl" / "users.acl").read_text()

    assert "user default off" in text and "nopass" not in text
    assert not [told for told in variables.values() if told["ESPER_REDIS_PASSWORD"] in text]
    assert len({told["ESPER_REDIS_PASSWORD"] for told in variables.values()}) == len(USERS) + 1
    paths = [path_of(short_directory / "acl", role) for role in USERS]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert paths[0].parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("version", "can"), [("6.2.14", False), ("7.0.15", True), ("7.4.0", True), ("8.0.1", True)])
def test_a_server_before_selectors_cannot_keep_roles_apart(version: str, can: bool) -> None:
    answer = enforceable(version)

    assert bool(answer) is can
    assert answer.reason == ("" if can else "Redis 6.2.14 knows no selectors in ACLs; expected 7.0 or newer")
