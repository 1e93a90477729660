"""`esper doctor` says what is wrong with a machine and a Redis, and what to do."""

from __future__ import annotations

import asyncio
import json
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from esper.bus import connect
from esper.bus.embedded import EmbeddedRedis
from esper.bus.faults import FailingDiskError
from esper.bus.upkeep.survey import Group, StreamView
from esper.cli.main import app
from esper.doctor.facts import DefaultUser, FirstMessage, MachineFacts, Rights, ServerFacts
from esper.doctor.first_message import first_message
from esper.doctor.machine import least_quota, machine_facts, quota_of
from esper.doctor.machine_checks import machine_findings
from esper.doctor.run_checks import rights_finding, role_of, stream_findings
from esper.doctor.server import server_facts
from esper.doctor.server_checks import arrival, server_findings, shut_out, unreachable
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.runtime.operations.findings import Finding
from tests.bus_kit import fill_disk, put
from tests.pages import ROOT
from tests.scripted import ScriptedRun

MACHINE = MachineFacts((3, 12), "2.13.0+cpu", 8, None, "1", 1 << 30, 4096, True)
SERVER = ServerFacts(
    at="redis://redis:6379",
    version="7.0.15",
    role="master",
    policy="noeviction",
    max_memory_bytes=1000 << 20,
    used_memory_bytes=100 << 20,
    total_memory_bytes=4000 << 20,
    num_evicted=0,
    last_writes_well=True,
    promise="acknowledges a publish once it is on disk (appendfsync always)",
    window_s=None,
    durable=True,
    tells_settings=True,
    num_replicas=1,
    num_replicas_wanted=1,
    user="digits-00c0ffee-worker",
    named_users=True,
    default_user=DefaultUser(lets_in=False, all_rights=True),
    skew_s=0.01,
    round_trips_s=(0.001, 0.002, 0.2),
)
GROUP = Group("worker-0", lag=0, pending=3, oldest_pending_s=1.0, max_attempts=1, num_active=1, num_quiet=0)


def ill(findings: list[Finding]) -> dict[str, str]:
    """Checks that are not ok, each of which says what to do; and none that is ok does."""
    assert [finding for finding in findings if bool(finding.todo) != (finding.status != "ok")] == []
    return {finding.check: finding.status for finding in findings if finding.status != "ok"}


def test_nothing_is_to_be_done_where_all_is_well() -> None:
    assert ill(machine_findings(MACHINE)) == {}
    assert ill(server_findings(SERVER)) == {}


@pytest.mark.parametrize(
    ("facts", "check", "status"),
    [
        ({"python": (3, 10)}, "python", "fail"),
        ({"torch": ""}, "torch", "warn"),
        ({"torch": "2.12.1"}, "torch", "fail"),
        ({"threads": ""}, "", ""),
        ({"threads": "", "quota": 2.5}, "threads", "warn"),
        ({"threads": "3", "quota": 2.5}, "", ""),
        ({"threads": "9"}, "threads", "warn"),
        ({"threads": "²"}, "", ""),  # a digit, and no number
        ({"shm_free_bytes": 64 << 20}, "shared memory", "warn"),
        ({"shm_free_bytes": None}, "shared memory", "warn"),
        ({"open_files": -1}, "", ""),
        ({"open_files": 512}, "open files", "warn"),
        ({"open_files": 128}, "open files", "fail"),
        ({"clock_synced": False}, "clock", "warn"),
        ({"clock_synced": None}, "clock", "warn"),
    ],
)
def test_a_machine_is_judged_by_each_of_its_facts(facts: dict[str, Any], check: str, status: str) -> None:
    assert ill(machine_findings(replace(MACHINE, **facts))) == ({check: status} if check else {})


def test_python_and_torch_are_wanted_as_new_as_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [torch] = [wanted for wanted in project["dependencies"] if wanted.startswith("torch>=")]

    of_python, of_torch, *_ = machine_findings(replace(MACHINE, torch="1.0", python=(3, 0)))

    assert of_python.expected == f"{project['requires-python'].removeprefix('>=')} or newer"
    assert of_torch.expected == f"{torch.removeprefix('torch>=')} or newer where models are trained"
    assert of_torch.todo == f"pip install '{torch}'"


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({"version": "6.0.16"}, {"redis": "fail", "acl": "warn"}),
        ({"version": "6.2.14"}, {"acl": "warn"}),
        ({"user": "default"}, {"acl": "warn"}),
        ({"user": None}, {"acl": "warn"}),
        ({"default_user": DefaultUser(lets_in=True, all_rights=True)}, {"default user": "warn"}),
        ({"default_user": DefaultUser(lets_in=True, all_rights=False)}, {"default user": "warn"}),
        ({"default_user": DefaultUser(lets_in=True, all_rights=True), "named_users": False}, {}),
        ({"default_user": DefaultUser(lets_in=False, all_rights=False)}, {"default user": "warn"}),
        ({"default_user": DefaultUser(lets_in=False, all_rights=None)}, {}),
        ({"default_user": None}, {}),
        ({"role": "slave"}, {"redis role": "fail"}),
        ({"policy": "allkeys-lru"}, {"eviction policy": "fail"}),
        ({"num_evicted": 3}, {"evicted keys": "warn"}),
        ({"used_memory_bytes": 850 << 20}, {"memory": "warn"}),
        ({"used_memory_bytes": 990 << 20}, {"memory": "fail"}),
        ({"max_memory_bytes": 0, "used_memory_bytes": 990 << 20}, {}),
        ({"durable": False, "window_s": 2.0}, {}),
        ({"durable": False}, {"persistence": "warn"}),
        ({"durable": False, "tells_settings": False}, {"persistence": "warn"}),
        ({"last_writes_well": False}, {"writes to disk": "fail"}),
        ({"num_replicas": 0}, {"replicas": "fail"}),
        ({"skew_s": -1.5}, {"clock skew": "warn"}),
        ({"skew_s": 31.0}, {"clock skew": "fail"}),
        ({"round_trips_s": (0.01, 0.02, 0.02)}, {"round trip": "warn"}),
        ({"round_trips_s": (0.6, 0.6, 0.7)}, {"round trip": "fail"}),
    ],
)
def test_a_server_is_judged_by_each_of_its_facts(facts: dict[str, Any], found: dict[str, str]) -> None:
    assert ill(server_findings(replace(SERVER, **facts))) == found


def test_what_a_server_that_is_not_reached_was_expected_to_be_is_said_once() -> None:
    tls = unreachable("Redis at redis://there:1 speaks TLS; expected a URL that begins with rediss://")
    away = unreachable("Redis at redis://there:1 cannot be reached: no answer in time")
    shut = shut_out("Redis at redis://there:1 refuses us: Authentication required; expected a password")

    assert (tls.met, tls.expected) == ("Redis at redis://there:1 speaks TLS", "a URL that begins with rediss://")
    assert away.expected == "a Redis that answers"
    assert (shut.met.endswith("required"), shut.expected) == (True, "a user who is let in")


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (FirstMessage(0.02), "ok"),
        (FirstMessage(0.7), "warn"),
        (FirstMessage(6.0), "fail"),
        (FirstMessage(0.0, "Redis is out of memory"), "fail"),
        (FirstMessage(0.0, "no permissions", may_not=True), "ok"),
    ],
)
def test_a_first_message_is_to_arrive_soon(message: FirstMessage, status: str) -> None:
    found = arrival(message)

    assert (found.status, bool(found.todo)) == (status, status != "ok")


def test_a_group_that_is_behind_is_named() -> None:
    late, far = replace(GROUP, name="late", oldest_pending_s=61.0), replace(GROUP, name="far", lag=None)

    well = stream_findings([StreamView("commands", 3, (GROUP,))])
    behind = stream_findings([StreamView("commands", 3, (GROUP, late)), StreamView("r0/telemetry", 9, (far,))])

    assert [(finding.check, finding.status) for finding in well] == [("streams", "ok")]
    assert [(finding.check, finding.status) for finding in behind] == [
        ("stream commands", "warn"),
        ("stream r0/telemetry", "warn"),
    ]
    assert "late" in behind[0].met and "more than 1000 unread" in behind[1].met


def test_a_right_too_few_stops_a_role_and_one_too_many_is_a_door_left_open() -> None:
    whole = Rights("regional", adds=frozenset({"regional", "dead"}), reads=frozenset({"telemetry"}))
    more = replace(whole, adds=whole.adds | {"commands"})
    fewer = replace(more, reads=frozenset())

    found = {rights: rights_finding("regional", rights) for rights in (whole, more, fewer)}

    assert [each.status for each in found.values()] == ["ok", "warn", "fail"]
    assert found[more].met == "regional may also add to commands"
    assert found[fewer].met == "regional may not read telemetry; may also add to commands"


def test_a_role_is_told_by_the_name_of_its_user_else_by_its_keys() -> None:
    run = "digits-00c0ffee"

    assert role_of(run, f"{run}-exporter", [Role.OBSERVER]) == "exporter"
    assert role_of(run, "alice", [Role.CONTROLLER, Role.OPTIMIZER]) == "controller"
    assert role_of(run, "alice", [Role.CONTROLLER]) is None


def test_a_quota_of_cores_is_read_as_the_kernel_writes_it(tmp_path: Any) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text("150000 100000\n")
    bounded = quota_of(quota)
    quota.write_text("max 100000\n")

    assert (bounded, quota_of(quota), quota_of(tmp_path / "none")) == (1.5, None, None)
    assert machine_facts().cores >= 1


def test_the_least_quota_of_the_groups_above_is_the_one_that_holds(tmp_path: Path) -> None:
    groups, own, unit = tmp_path / "cgroup", tmp_path / "own", tmp_path / "cgroup" / "system.slice" / "x.service"
    unit.mkdir(parents=True)
    own.write_text("12:cpu:/elsewhere\n0::/system.slice/x.service\n")
    (unit / "cpu.max").write_text("max 100000\n")
    (unit.parent / "cpu.max").write_text("50000 100000\n")
    (groups / "cpu.max").write_text("400000 100000\n")

    assert least_quota(groups, own) == 0.5
    assert least_quota(groups, tmp_path / "none") == 4.0
    assert least_quota(tmp_path / "nowhere", own) is None


def test_a_server_that_does_not_tell_its_memory_is_not_said_to_have_none() -> None:
    [found] = [
        finding
        for finding in server_findings(replace(SERVER, max_memory_bytes=0, total_memory_bytes=0))
        if finding.check == "memory"
    ]

    assert (found.status, found.met) == ("ok", "100 MiB, of an unknown sum")


async def num_scans(redis: connect.Redis) -> int:
    """How often this server was asked for its keys."""
    return int((await redis.info("commandstats")).get("cmdstat_scan", {"calls": 0})["calls"])


async def test_a_message_really_goes_all_the_way_and_leaves_nothing_behind(
    redis: connect.Redis, redis_reader: connect.Redis
) -> None:
    before = await num_scans(redis)
    found = await first_message(redis_reader, redis)
    assert await num_scans(redis) == before  # a look through every key of a server takes as long as it has keys
    facts = await server_facts(redis)

    assert (found.why, found.may_not) == ("", False) and 0.0 < found.seconds < 10.0
    assert [key async for key in redis.scan_iter(match="esper:{doctor-*")] == []
    assert (facts.policy, facts.role, facts.user) == ("noeviction", "master", "default")
    assert facts.window_s == 2.0 and len(facts.round_trips_s) == 20 and abs(facts.skew_s) < 1.0


async def test_a_message_arrives_also_from_a_machine_whose_clock_is_off(
    redis: connect.Redis, redis_reader: connect.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_hour_ahead = {"incarnation": None, "clock_ns": lambda: time.time_ns() + 3_600_000_000_000}
    monkeypatch.setattr(Sealer.__init__, "__kwdefaults__", an_hour_ahead)

    found = await first_message(redis_reader, redis)

    assert (found.why, found.may_not) == ("", False)


async def test_a_server_tells_of_itself_by_either_protocol(redis_url: str) -> None:
    told = []
    for protocol in (2, 3):
        async with connect.writer(f"{redis_url.partition('?')[0]}?protocol={protocol}") as redis:
            facts = await server_facts(redis)
        told.append((facts.num_replicas_wanted, facts.tells_settings, facts.default_user))

    assert told == [(0, True, DefaultUser(lets_in=True, all_rights=True))] * 2


async def test_a_user_who_may_not_touch_other_streams_is_told_so(redis: connect.Redis, redis_url: str) -> None:
    await redis.execute_command("ACL", "SETUSER", "kept", "on", ">secret", "~esper:{other}:*", "+@all", "-acl")
    url = redis_url.replace("unix://", "unix://kept:secret@")
    try:
        async with connect.reader(url) as reader, connect.writer(url) as writer:
            found, facts = await first_message(reader, writer), await server_facts(writer)
    finally:
        await redis.execute_command("ACL", "DELUSER", "kept")

    assert found.may_not and arrival(found).status == "ok"
    assert facts.user == "kept" and facts.tells_settings
    assert facts.named_users and facts.default_user == DefaultUser(lets_in=True, all_rights=True)


async def asked(*words: str) -> tuple[int, str, str]:
    result = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", *words])
    return result.exit_code, result.stdout, result.stderr


async def test_the_command_looks_at_the_redis_of_a_run_and_at_its_keys(run: ScriptedRun) -> None:
    await run.beat(1)

    status, text, _ = await asked("--run", run.name)
    _, rows, _ = await asked("--run", run.name, "--json")

    content = json.loads(rows)
    checks = {check["check"]: check for check in content["checks"]}
    assert status == 0 and content["status"] in ("ok", "warn")
    assert {"python", "eviction policy", "clock skew", "first message", "keyring", "streams"} <= checks.keys()
    assert checks["keyring"]["status"] == checks["first message"]["status"] == "ok"
    assert f"{'ok':4}  {'eviction policy':16}  noeviction" in text.splitlines()
    assert text.splitlines()[-1].endswith("0 fail")


async def test_of_a_redis_whose_disk_is_full_it_says_that(short_directory: Path) -> None:
    with EmbeddedRedis(short_directory / "full") as server:
        fill_disk(server)
        async with connect.writer(server.url) as writer:
            with pytest.raises(FailingDiskError):
                await put(writer, "stream", *[b"one"] * 10_000)

        status, rows, _ = await asked("--redis", server.url, "--json")

    failed = {check["check"]: check for check in json.loads(rows)["checks"] if check["status"] == "fail"}
    assert status == 1 and failed.keys() == {"writes to disk", "first message"}
    assert "its disk is full" in failed["writes to disk"]["todo"]


async def test_commands_that_a_server_renames_are_named(short_directory: Path) -> None:
    renamed = short_directory / "renamed.conf"
    renamed.write_text('rename-command XAUTOCLAIM ""\nrename-command SCAN hidden\nrename-command DEL ""\n')

    with EmbeddedRedis(short_directory / "renamed", options={"include": str(renamed)}) as server:
        status, rows, _ = await asked("--redis", server.url, "--json")

    checks = {check["check"]: check for check in json.loads(rows)["checks"]}
    assert status == 1
    assert checks["redis commands"]["met"] == "DEL, SCAN, XAUTOCLAIM not known here"


async def test_a_redis_that_does_not_answer_fails_and_a_bad_url_is_bad_input(run: ScriptedRun) -> None:
    away = await asked("--redis", "unix:///nonexistent/redis.sock")
    bad = await asked("--redis", "http://redis")
    both = await asked("--redis", run.url, "--run", run.name)

    assert away[0] == 1 and "fail  redis" in away[1] and "-> start it" in away[1]
    assert [(status, error.count("\n")) for status, _, error in (bad, both)] == [(2, 1), (2, 1)]
