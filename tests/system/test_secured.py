"""A run over TLS, with a Redis user for each role: all of it works, and a worker can't speak as a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.bus import embedded, names
from esper.bus.acl import ADMIN, user_name
from esper.bus.client.credentials import completed
from esper.bus.connect import writer
from esper.bus.embedded import EmbeddedRedis
from esper.bus.publisher import Publisher
from esper.cli.main import app
from esper.errors import BusError
from esper.leyline.kinds import Role
from tests.many_servers import HOST, free_ports
from tests.server_kit import newer_server
from tests.system.processes import Start
from tests.system.town import REGION, Town, rate, rate_is
from tests.tls_kit import Authority

ASKED_IN_VAIN = {"config|get"}
"""Whoever starts asks for Redis's settings, to say what may be lost; that they stay hidden is provided for."""


class Secured(Town):
    """Each process finds its user's variables in its environment, and those of TLS; this one is the administrator."""

    def __init__(
        self, server: EmbeddedRedis, run_id: str, directory: Path, url: str, tls: dict[str, str], start: Start
    ) -> None:
        self.bare, self.tls, self.users = url, tls, directory / "passwords"
        super().__init__(server, run_id, directory, self.url_of(ADMIN, run_id), start=start)

    def variables(self, user: str, run_id: str) -> dict[str, str]:
        name = user if user == ADMIN else user_name(run_id, user)
        lines = (self.users / f"{name}.env").read_text().splitlines()
        return {**self.tls, **dict(line.split("=", 1) for line in lines)}

    def url_of(self, user: str, run_id: str) -> str:
        return completed(self.bare, self.variables(user, run_id))

    def _environment(self, name: str, role: Role) -> dict[str, str]:
        given = super()._environment(name, role)
        return {**given, **self.variables(role.value, self.run_id), "ESPER_REDIS_URL": self.bare}


@pytest.fixture
def secured(short_directory: Path, run_id: str, tmp_path: Path, born: Start) -> Iterator[Secured]:
    authority, (port,) = Authority(tmp_path, "authority"), free_ports(1)
    server, client = authority.issue("server", HOST), authority.issue("client")
    (tmp_path / "users.acl").write_text("user default on nopass ~* &* +@all\n")
    options = {
        "tls-port": str(port),
        "bind": HOST,
        "tls-ca-cert-file": str(authority.cert),
        "tls-cert-file": str(server.cert),
        "tls-key-file": str(server.key),
        "aclfile": str(tmp_path / "users.acl"),
    }
    tls = {"CA": authority.cert, "CERT": client.cert, "KEY": client.key}
    variables = {f"ESPER_REDIS_{name}": str(path) for name, path in tls.items()}
    with EmbeddedRedis(short_directory / run_id, binary=newer_server(), options=options) as started:
        assert CliRunner().invoke(app, ["acl", run_id, "--out", str(tmp_path / "users.acl")]).exit_code == 0
        assert embedded.asked(started.socket, b"ACL LOAD") == b"+OK\r\n"
        town = Secured(started, run_id, tmp_path, f"rediss://{HOST}:{port}/0", variables, born)
        yield town
        town.close()


def test_a_run_under_acls_and_tls_obeys_its_controller_alone_also_after_the_users_are_loaded_anew(
    secured: Secured,
) -> None:
    run_id, commands = secured.run_id, names.key(secured.run_id, "commands")

    async def add(user: str, value: float) -> None:
        async with writer(secured.url_of(user, run_id)) as redis:
            await Publisher(redis).add(commands, secured.sealed_now(rate(value)))

    asyncio.run(add("controller", 0.05))
    secured.steps_until(rate_is(secured, 0.05))
    secured.steps_until(lambda: bool(secured.said("global")))
    told = [dict(zip(row[::2], row[1::2], strict=True)) for row in secured.order("ACL", "LOG", "100")]
    denied = {row[b"object"].decode() for row in told}
    for user in ("worker", "coordinator", "regional", "global", "observer", "exporter"):
        with pytest.raises(BusError, match="permission"):
            asyncio.run(add(user, 0.04))

    alone = len(secured.sealed(commands))
    secured.order("ACL", "LOAD")  # which drops every connection of a user with a name
    asyncio.run(add("controller", 0.03))
    secured.steps_until(rate_is(secured, 0.03))

    assert denied <= ASKED_IN_VAIN
    assert alone == 1
    assert [process.poll() for process in secured.servers.values()] == [None] * 3
    assert names.region_key(run_id, REGION, "telemetry").encode() in secured.order("KEYS", "*")
