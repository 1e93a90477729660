"""TLS to a real server: what ESPER_REDIS_ variables name is used, and whatever does not fit is one clear sentence."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from esper.bus import connect
from esper.bus.client import diagnosis
from esper.bus.client.credentials import completed
from esper.bus.embedded import EmbeddedRedis, asked, launched
from esper.bus.faults import LostError
from esper.errors import BusError, SettingError
from tests.bus_kit import sockets
from tests.faults.processes import wait_until
from tests.many_servers import HOST, free_ports
from tests.server_kit import newer_server
from tests.tls_kit import Authority, Issued


@dataclass(frozen=True)
class Place:
    """A server that asks for client certificates on one port and speaks no TLS on the other."""

    port: int
    plain_port: int
    authority: Authority
    client: Issued
    stranger: Authority
    told: dict[str, str]

    def variables(self, **changed: Path | str) -> dict[str, str]:
        given = {"CA": self.authority.cert, "CERT": self.client.cert, "KEY": self.client.key, **changed}
        return {f"ESPER_REDIS_{name}": str(value) for name, value in given.items()}

    def url(self, host: str = HOST) -> str:
        return f"rediss://{host}:{self.port}/0"


@pytest.fixture(scope="module")
def place(short_directory: Path) -> Iterator[Place]:
    binary = newer_server()
    directory = short_directory / "tls"
    directory.mkdir()
    authority, (port, plain_port) = Authority(directory, "ours"), free_ports(2)
    server = authority.issue("server", HOST)
    told = {
        "bind": HOST,
        "tls-ca-cert-file": str(authority.cert),
        "tls-cert-file": str(server.cert),
        "tls-key-file": str(server.key),
    }
    options = {**told, "port": str(plain_port), "tls-port": str(port)}
    with EmbeddedRedis(directory / "data", binary=binary, options=options):
        yield Place(port, plain_port, authority, authority.issue("client"), Authority(directory, "strange"), told)


@pytest.fixture(scope="module")
def sentinels(place: Place, short_directory: Path) -> Iterator[str]:
    """URL of one Sentinel that watches the server; both speak TLS."""
    [port] = free_ports(1)
    settings = short_directory / "tls" / "sentinel.conf"
    lines = [f"{name} {value}" for name, value in {**place.told, "port": "0", "tls-port": str(port)}.items()]
    watched = ["tls-replication yes", f"dir {settings.parent}", f"sentinel monitor ours {HOST} {place.port} 1"]
    settings.write_text("\n".join([*lines, *watched]) + "\n")
    process = launched([str(newer_server()), str(settings), "--sentinel"])
    wait_until(lambda: listens(port), "the Sentinel listens")
    yield f"rediss+sentinel://{HOST}:{port}/ours"
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def nodes(place: Place, short_directory: Path) -> Iterator[str]:
    """URL of a Cluster of one, which speaks TLS."""
    [port] = free_ports(1)
    options = {**place.told, "port": "0", "tls-port": str(port), "cluster-enabled": "yes", "tls-cluster": "yes"}
    with EmbeddedRedis(short_directory / "tls" / "node", binary=newer_server(), options=options) as node:
        asked(node.socket, b"CLUSTER ADDSLOTSRANGE 0 16383")
        wait_until(lambda: b"cluster_state:ok" in asked(node.socket, b"CLUSTER INFO"), "the Cluster is whole")
        yield f"rediss+cluster://{HOST}:{port}"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that stands still for more than a second is not away, nor does it speak otherwise than it does."""
    monkeypatch.setattr(connect, "LOOK_S", 60.0)
    monkeypatch.setattr(diagnosis, "PROBE_S", 60.0)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


async def answer(url: str) -> object:
    async with connect.writer(url) as redis:
        return await redis.execute_command("PING")


async def refusal(url: str) -> str:
    """The one sentence; what is worth trying again is none."""
    with pytest.raises(BusError) as caught:
        await answer(url)
    assert type(caught.value) is BusError
    return str(caught.value)


async def test_a_server_is_reached_with_the_files_that_the_variables_name(place: Place) -> None:
    assert await answer(completed(place.url(), place.variables())) is True


@pytest.mark.parametrize("kind", ["server", "sentinels", "nodes"])
async def test_a_server_that_says_no_goodbye_is_not_waited_for(
    place: Place, kind: str, request: pytest.FixtureRequest
) -> None:
    url = place.url() if kind == "server" else request.getfixturevalue(kind)
    before = sockets()
    redis = connect.writer(completed(f"{url}?socket_connect_timeout=600", place.variables()))
    await redis.execute_command("PING")
    process_id = (await redis.info("server"))["process_id"]

    os.kill(process_id, signal.SIGSTOP)
    try:
        async with asyncio.timeout(20.0):  # by itself asyncio would give it up after 30
            await redis.aclose()
            while sockets() - before:  # the loop closes them as soon as it gets there
                await asyncio.sleep(0.01)
    finally:
        os.kill(process_id, signal.SIGCONT)


async def test_what_the_url_says_wins_over_the_variables(place: Place) -> None:
    url = f"{place.url()}?ssl_ca_certs={place.authority.cert}"

    assert await answer(completed(url, place.variables(CA=place.stranger.cert))) is True


async def test_a_certificate_of_another_authority_is_refused(place: Place) -> None:
    said = await refusal(completed(place.url(), place.variables(CA=place.stranger.cert)))

    assert "a certificate that does not hold (self-signed certificate in certificate chain)" in said
    assert "ESPER_REDIS_CA" in said


async def test_a_certificate_for_another_host_is_refused(place: Place) -> None:
    said = await refusal(completed(place.url("localhost"), place.variables()))

    assert "certificate is not valid for 'localhost'" in said


async def test_a_client_without_a_certificate_is_told_to_bring_one(place: Place) -> None:
    said = await refusal(completed(place.url(), place.variables(CERT="", KEY="")))

    assert "hangs up after the TLS handshake" in said and "ESPER_REDIS_CERT" in said


async def test_a_certificate_that_the_server_does_not_trust_is_told_apart_from_a_lost_server(place: Place) -> None:
    other = place.stranger.issue("other")

    said = await refusal(completed(place.url(), place.variables(CERT=other.cert, KEY=other.key)))

    assert "a client certificate that its authority has signed" in said


async def test_no_tls_to_a_port_that_speaks_it_is_refused(place: Place) -> None:
    said = await refusal(f"redis://{HOST}:{place.port}/0")

    assert said == f"Redis at redis://{HOST}:{place.port}/0 speaks TLS; expected a URL that begins with rediss://"


async def test_tls_to_a_port_that_speaks_none_is_refused(place: Place) -> None:
    said = await refusal(f"rediss://{HOST}:{place.plain_port}/0?socket_connect_timeout=0.2")

    assert (
        said == f"Redis at rediss://{HOST}:{place.plain_port}/0 speaks no TLS; expected a URL that begins with redis://"
    )


async def test_all_who_ask_a_port_that_speaks_no_tls_are_told_so(place: Place) -> None:
    async with connect.writer(f"rediss://{HOST}:{place.plain_port}/0?socket_connect_timeout=0.2") as redis:
        said = await asyncio.gather(redis.ask(("PING",)), redis.ask(("PING",)), return_exceptions=True)

    assert ["speaks no TLS" in str(each) for each in said] == [True, True]


async def test_who_waits_for_less_than_a_connection_takes_is_told_so_too(place: Place) -> None:
    async with connect.client(f"rediss://{HOST}:{place.plain_port}/0", 0.1) as redis:
        with pytest.raises(BusError, match="speaks no TLS; expected a URL that begins with redis://"):
            await redis.ask(("PING",))


async def test_a_server_that_is_not_there_stays_one_to_wait_for(place: Place) -> None:
    (port,) = free_ports(1)

    with pytest.raises(BusError, match="cannot be reached") as caught:
        await answer(completed(f"rediss://{HOST}:{port}/0", place.variables()))
    assert type(caught.value) is not BusError


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CA": "/nowhere/ca.pem"}, "ESPER_REDIS_CA is '/nowhere/ca.pem'; expected a PEM file that can be read"),
        ({"CA": "pyproject.toml"}, "ESPER_REDIS_CA is 'pyproject.toml'; expected a PEM file that can be read"),
        (
            {"KEY": ""},
            "ESPER_REDIS_KEY is not set; expected a PEM file: a client's certificate and its key go together",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_named_before_anything_connects(
    place: Place, variables: dict[str, str], said: str
) -> None:
    with pytest.raises(SettingError) as caught:
        completed(place.url(), place.variables(**variables))

    assert str(caught.value) == said


def test_a_key_of_another_certificate_is_refused_before_anything_connects(place: Place) -> None:
    other = place.authority.issue("another").key

    with pytest.raises(SettingError, match=r"ESPER_REDIS_KEY is .*another\.key'; expected the key of .*client\.crt"):
        completed(place.url(), place.variables(KEY=other))


def test_a_key_under_a_passphrase_asks_nobody_for_it(place: Place, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    key = serialization.load_pem_private_key(place.client.key.read_bytes(), None)
    under = serialization.BestAvailableEncryption(b"word")
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, under))

    with pytest.raises(SettingError, match=r"locked\.key'; expected the key of .* without a passphrase"):
        completed(place.url(), place.variables(KEY=locked))
    assert "ssl_password=word" in completed(f"{place.url()}?ssl_password=word", place.variables(KEY=locked))


def test_a_key_is_no_authority(place: Place) -> None:
    with pytest.raises(SettingError, match=r"ESPER_REDIS_CA is .*; expected a PEM file of certificates"):
        completed(place.url(), place.variables(CA=place.client.key))


async def test_a_file_that_does_not_load_any_more_is_a_lost_server(place: Place, tmp_path: Path) -> None:
    url = f"{place.url()}?ssl_ca_certs={place.authority.cert}&ssl_certfile={place.client.cert}"

    with pytest.raises(LostError, match="cannot be reached"):
        await answer(f"{url}&ssl_keyfile={place.authority.issue('third').key}")


async def test_sentinels_are_asked_with_the_same_files(place: Place, sentinels: str) -> None:
    assert await answer(completed(sentinels, place.variables())) is True


async def test_nodes_of_a_cluster_are_asked_with_the_same_files(place: Place, nodes: str) -> None:
    assert await answer(completed(nodes, place.variables())) is True


@pytest.mark.parametrize("kind", ["server", "sentinels", "nodes"])
async def test_no_authority_of_the_system_is_trusted_beside_the_one_that_is_named(
    kind: str, place: Place, sentinels: str, nodes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = {"server": place.url(), "sentinels": sentinels, "nodes": nodes}[kind]
    monkeypatch.setenv("SSL_CERT_FILE", str(place.authority.cert))

    assert await answer(completed(url, place.variables(CA=""))) is True
    with pytest.raises(BusError):
        await answer(completed(url, place.variables(CA=place.stranger.cert)))


async def test_a_node_that_no_authority_of_ours_has_signed_is_not_even_asked_who_holds_what(
    place: Place, nodes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(place.authority.cert))

    async with connect.writer(completed(nodes, place.variables())) as ours:
        assert len(await ours.servers()) == 1
    async with connect.writer(completed(nodes, place.variables(CA=place.stranger.cert))) as strange:
        with pytest.raises(BusError):
            await strange.servers()


def test_files_of_tls_ask_for_a_url_of_tls(place: Place) -> None:
    with pytest.raises(
        SettingError, match="ESPER_REDIS_URL is 'redis://host/0'; expected a URL that begins with rediss"
    ):
        completed("redis://host/0", place.variables())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://host:1/0", "redis://w:p%40%2F@host:1/0"),
        ("redis://else:where@host/0", "redis://else:where@host/0"),
        ("unix:///tmp/redis.sock?protocol=3", "unix://w:p%40%2F@/tmp/redis.sock?protocol=3"),
        ("redis+cluster://a:1,b:2", "redis+cluster://w:p%40%2F@a:1,b:2"),
        ("redis+sentinel://a,b/primary", "redis+sentinel://w:p%40%2F@a,b/primary"),
    ],
)
def test_the_user_of_the_variables_joins_a_url_without_one(url: str, expected: str) -> None:
    assert completed(url, {"ESPER_REDIS_USERNAME": "w", "ESPER_REDIS_PASSWORD": "p@/"}) == expected


def test_a_user_without_a_password_is_one_clear_error() -> None:
    with pytest.raises(SettingError, match="ESPER_REDIS_PASSWORD is not set; expected the password of w"):
        completed("redis://host", {"ESPER_REDIS_USERNAME": "w"})


def test_nothing_named_leaves_a_url_as_it_is() -> None:
    assert completed("rediss://host:1/0?ssl_min_version=771", {}) == "rediss://host:1/0?ssl_min_version=771"
