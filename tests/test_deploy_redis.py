"""deploy/redis: a server takes every line of redis.conf, and each process of compose.yaml gets the user of its role."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from esper.bus import connect
from esper.bus.acl import ADMIN, USERS
from esper.bus.client.credentials import completed
from esper.bus.embedded import EmbeddedRedis
from esper.cli.main import app
from tests.many_servers import HOST, free_ports
from tests.server_kit import newer_server
from tests.tls_kit import Authority

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy" / "redis"
KEYRINGS = {"worker": "worker", "observer": "exporter"}
"""Keyring of a service: the Redis user that goes with it, where it is not called alike."""


def services(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["services"]
    return found


def test_each_process_of_compose_gets_the_user_of_its_role() -> None:
    plain, secured = services(ROOT / "compose.yaml"), services(DEPLOY / "compose.secure.yaml")
    ours = {name for name, one in plain.items() if "ESPER_KEYRING" in one.get("environment", {})}

    users = {name: one["env_file"][0].rpartition("-")[2] for name, one in secured.items() if name != "redis"}

    assert ours == set(users) and set(secured) <= set(plain)
    for name in ours:
        keyring = Path(plain[name]["environment"]["ESPER_KEYRING"]).stem
        assert users[name] == f"{KEYRINGS.get(keyring, keyring)}.env"
        assert users[name].removesuffix(".env") in USERS
        assert secured[name]["environment"]["ESPER_REDIS_URL"].startswith("rediss://redis:")


def test_files_that_are_replaced_while_redis_runs_are_mounted_by_their_folder() -> None:
    mounted = [volume.split(":")[1] for volume in services(DEPLOY / "compose.secure.yaml")["redis"]["volumes"]]

    told = dict(
        line.split(maxsplit=1) for line in (DEPLOY / "redis.conf").read_text().splitlines() if line[:1] not in ("", "#")
    )

    replaced = [told["aclfile"], *(value for name, value in told.items() if name.startswith("tls-") and "/" in value)]
    assert len(replaced) == 4
    assert [path for path in replaced if str(Path(path).parent) not in mounted] == []


async def test_a_server_takes_every_line_of_the_configuration_and_lets_the_administrator_in(
    short_directory: Path, tmp_path: Path
) -> None:
    authority, (port,) = Authority(tmp_path, "ca"), free_ports(1)
    issued = {name: authority.issue(name, HOST) for name in ("server", "client")}
    (tmp_path / "acl").mkdir()
    out = ["--out", str(tmp_path / "acl" / "users.acl"), "--passwords", str(tmp_path / "passwords")]
    assert CliRunner().invoke(app, ["acl", "toy-0a1b2c3d", *out]).exit_code == 0
    lines = [
        shlex.split(line) for line in (DEPLOY / "redis.conf").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    told = {words[0]: words[1].replace("/etc/redis/tls/", "/etc/redis/") for words in lines}
    options = {name: value.replace("/etc/redis", str(tmp_path)) for name, value in told.items()}
    variables = dict(line.split("=", 1) for line in (tmp_path / "passwords" / f"{ADMIN}.env").read_text().splitlines())
    variables |= {"ESPER_REDIS_CA": str(authority.cert), "ESPER_REDIS_CERT": str(issued["client"].cert)}
    variables |= {"ESPER_REDIS_KEY": str(issued["client"].key)}
    url = completed(f"rediss://{HOST}:{port}/0", variables)

    options |= {"tls-port": str(port), "bind": HOST}
    with EmbeddedRedis(short_directory / "deploy", binary=newer_server(), options=options):
        async with connect.writer(url) as redis:
            await connect.wait_ready(redis)
            await connect.check_server(redis)
            asked = [
                await redis.execute_command("CONFIG", "GET", name) for name in ("port", "tls-auth-clients", "tls-port")
            ]
            names = [line.split()[1] for line in await redis.execute_command("ACL", "LIST")]

    assert [value for _, value in asked] == [b"0", b"yes", str(port).encode()]
    assert {name.decode() for name in names} >= {"default", ADMIN, *(f"toy-0a1b2c3d-{role}" for role in USERS)}
