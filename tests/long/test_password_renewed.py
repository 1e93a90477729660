"""A process that reads its user from a file connects with the password that stands there by then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from redis.credentials import CredentialProvider

from esper.bus import connect
from esper.bus.client.credentials import PASSWORD, PASSWORD_FILE, USERNAME, completed
from esper.bus.embedded import EmbeddedRedis
from esper.bus.passwords import write
from esper.doctor.users import whoami
from esper.errors import BusError, SettingError

USER = "digits-worker"


class Door:
    """A server that knows one user, and the file with that user's password."""

    def __init__(self, server: EmbeddedRedis, file: Path) -> None:
        self.url, self.file = server.url, file

    async def let_in(self, *passwords: str) -> None:
        """With these alone; whoever is connected under the name has to say it anew."""
        async with connect.writer(self.url) as redis:
            known = [f">{password}" for password in passwords]
            await redis.execute_command("ACL", "SETUSER", USER, "reset", "on", *known, "~*", "+@all")
            await redis.execute_command("CLIENT", "KILL", "USER", USER)

    def hand_out(self, password: str) -> None:
        write(self.file, USER, password, "the file")

    @property
    def environment(self) -> dict[str, str]:
        return {USERNAME: USER, PASSWORD: "first", PASSWORD_FILE: str(self.file)}


@pytest.fixture
def door(server: EmbeddedRedis, tmp_path: Path) -> Door:
    return Door(server, tmp_path / "worker of digits & co.env")


async def answered(redis: connect.Redis) -> str:
    told: Any = await redis.execute_command("ACL", "WHOAMI")
    return str(told.decode())


async def test_a_client_goes_on_with_the_password_that_its_file_has_by_then(door: Door) -> None:
    door.hand_out("first")
    await door.let_in("first")
    async with connect.writer(completed(door.url, door.environment)) as redis:
        before = await answered(redis)
        await door.let_in("first", "second")
        between = await answered(redis)
        door.hand_out("second")
        await door.let_in("second")

        after = await answered(redis)

    assert {before, between, after} == {USER}


async def test_without_a_file_the_password_of_the_start_is_refused_by_then(door: Door) -> None:
    await door.let_in("first")
    async with connect.writer(completed(door.url, {**door.environment, PASSWORD_FILE: ""})) as redis:
        before = await answered(redis)
        await door.let_in("second")

        with pytest.raises(BusError, match="refuses us"):
            await answered(redis)

    assert before == USER


async def test_a_file_that_is_away_leaves_who_has_read_it_with_what_it_said(door: Door) -> None:
    door.hand_out("first")
    await door.let_in("first")
    async with connect.writer(completed(door.url, door.environment)) as redis:
        await answered(redis)
        door.file.unlink()
        await door.let_in("first")

        assert await answered(redis) == USER
    assert completed(door.url, door.environment) == door.url.replace("unix://", f"unix://{USER}:first@")


async def test_a_client_that_is_made_while_the_file_is_away_knows_what_it_said(door: Door) -> None:
    """As of a Cluster's node that is found later."""
    door.hand_out("first")
    await door.let_in("first")
    url = completed(door.url, door.environment)
    async with connect.writer(url) as redis:
        await answered(redis)
    door.file.unlink()

    async with connect.writer(url) as later:
        assert await answered(later) == USER


async def test_who_may_not_ask_the_server_who_it_is_knows_it_by_its_file(door: Door) -> None:
    door.hand_out("first")
    await door.let_in("first")
    async with connect.writer(door.url) as redis:
        await redis.execute_command("ACL", "SETUSER", USER, "-acl")

    async with connect.writer(completed(door.url, door.environment)) as redis:
        assert await whoami(redis) == USER


def test_a_file_that_says_something_else_is_one_line(door: Door) -> None:
    door.file.write_text("PATH=x\n")
    door.file.chmod(0o600)

    with pytest.raises(SettingError, match=f"{PASSWORD_FILE} is '.*co.env'; expected {USERNAME} and {PASSWORD} alone"):
        connect.writer(completed(door.url, {PASSWORD_FILE: str(door.file)}))


@pytest.mark.parametrize(
    "url", ["redis://u:p@h1", "redis://h1?username=u&password=p", "redis://h1?password_file=/other"]
)
def test_what_the_url_says_of_the_user_goes_before_the_file(url: str, door: Door) -> None:
    door.hand_out("first")

    assert str(door.file.name) not in completed(url, door.environment)


@pytest.mark.parametrize("url", ["redis+cluster://h1:7000", "redis+sentinel://h1:5000/mymaster", "redis://h1"])
def test_each_connection_asks_the_file_also_in_a_cluster_and_behind_sentinels(url: str, door: Door) -> None:
    door.hand_out("first")
    made: Any = connect.writer(completed(url, door.environment))

    told = made.connection_pool.connection_kwargs["credential_provider"]

    assert isinstance(told, CredentialProvider) and told.get_credentials() == (USER, "first")
