"""What ESPER_REDIS_URL may name, and where in a Cluster a command goes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from esper.bus import connect
from esper.bus.client.addresses import address
from esper.bus.client.cluster import key_of
from esper.bus.client.credentials import completed, nameless
from esper.bus.group.delivery import Delivery
from esper.bus.group.settlement import Settlement
from esper.bus.protocol import Argument
from esper.errors import RefusedError, SettingError
from esper.leyline import contracts as pb

ONE = ["redis://localhost:6379/0", "rediss://:secret@cache:6380", "unix:///run/redis.sock?db=1"]


@pytest.mark.parametrize("url", ONE)
def test_one_server_is_left_to_the_library(url: str) -> None:
    assert address(url) is None


def test_nodes_of_a_cluster_share_the_user_and_the_options() -> None:
    found = address("rediss+cluster://me:secret@h1:7000,h2,[::1]:7002?ssl_cert_reqs=none")

    assert found is not None
    assert found.nodes == (("h1", 7000), ("h2", 6379), ("::1", 7002))
    assert found.of("h3", 7003) == "rediss://me:secret@h3:7003/0?ssl_cert_reqs=none"
    assert found.of("::1", 7002) == "rediss://me:secret@[::1]:7002/0?ssl_cert_reqs=none"
    assert found.service == ""


def test_sentinels_are_asked_for_a_primary_by_its_name() -> None:
    found = address("redis+sentinel://h1,h2:5000/mymaster/2")

    assert found is not None
    assert (found.nodes, found.service) == ((("h1", 26379), ("h2", 5000)), "mymaster")
    assert found.of("h9", 6379) == "redis://h9:6379/2"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost", "redis\\+cluster://HOST:PORT"),
        ("redis+cluster://", "redis\\+sentinel://HOST:PORT"),
        ("redis+cluster://h1:7000/3", "no database"),
        ("redis+cluster://h1:7000?db=3", "no database: a Cluster has one"),
        ("redis+cluster://h1:7000/0?protocol=3&db=3", "no database: a Cluster has one"),
        ("unix:///run/a#b.sock", "%23 for each # in it"),
        ("redis://me:secret@h1#2:6379/0", "%23 for each # in it"),
        ("redis://h1:6379/0?client_name=a#b", "%23 for each # in it"),
        ("redis+sentinel://h1/my#master", "%23 for each # in it"),
        ("redis+sentinel://me:secret@h1:7000", "the primary's name"),
        ("redis+sentinel://h1:port/mymaster", "HOST:PORT where it says 'h1:port'"),
        ("redis+sentinel://h1/mymaster/first", "/NAME/0"),
        ("redis://me:secret@h1:port/0", "the port from 1 to 65535"),
        ("redis://me:secret@h1:65536/0", "the port from 1 to 65535"),
        ("redis://me:secret@h1:6379/first", "the number of a database"),
        ("unix://run/redis.sock", "unix:///PATH"),
        ("redis://me:secret@h1?decode_responses=1", "no 'decode_responses' behind its \\?"),
        ("redis://h1?ssl_ca_certs=ca.pem", "no 'ssl_ca_certs'"),
        ("redis://h1?socket_timeot=1", "near: 'socket_timeout'"),
        ("redis://h1?socket_timeout=soon", "socket_timeout"),
    ],
)
def test_anything_else_is_refused_in_one_line_without_its_password(url: str, expected: str) -> None:
    with pytest.raises(SettingError, match=expected) as refused:
        connect.writer(url)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("sign", ["/", "?", "#", "?secret="])
@pytest.mark.parametrize("before", ["redis://", "rediss://me", "redis+sentinel://me", "redis+cluster://"])
@pytest.mark.parametrize("first", ["12", "sec"])
def test_a_password_with_a_sign_of_the_url_is_told_how_it_is_written(before: str, first: str, sign: str) -> None:
    with pytest.raises(SettingError, match="a password whose signs /, \\? and # are written %2F") as refused:
        connect.writer(f"{before}:{first}{sign}ret@h1:6379/0")

    assert "ret" not in str(refused.value) and "sec" not in str(refused.value)


@pytest.mark.parametrize("name", ["max_connections", "retry_on_timeout", "retry_on_error", "decode_responses"])
@pytest.mark.parametrize("url", [*ONE[:2], "redis+cluster://h1", "redis+sentinel://h1/mymaster"])
def test_what_would_break_a_process_later_is_refused_before_it_connects(url: str, name: str) -> None:
    with pytest.raises(SettingError, match=f"no '{name}' behind its \\?, where it may say db, protocol"):
        connect.writer(f"{url}?{name}=1")


@pytest.mark.parametrize("url", ["redis://", "redis://h1", "redis://:p@ss@h1:6379/3/", "redis://[::1]:6379?protocol=3"])
def test_what_may_be_left_out_is_left_out(url: str) -> None:
    assert address(url) is None


def test_a_sign_that_is_written_out_is_part_of_the_path() -> None:
    assert connect.writer("unix:///run/a%23b.sock").connection_pool.connection_kwargs["path"] == "/run/a#b.sock"


def test_a_cluster_may_be_told_the_one_database_that_it_has() -> None:
    assert address("redis+cluster://h1:7000/0?db=0") is not None


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("XADD", "s", "*", "m", b"1"), "s"),
        (("XREADGROUP", "GROUP", "STREAMS", "c", "COUNT", 1, "BLOCK", 5, "STREAMS", "s", ">"), "s"),
        (("XREAD", "COUNT", 1, "STREAMS", "s", "0"), "s"),
        (("EVALSHA", "0a", 2, "k1", "k2", "x"), "k1"),
        (("EVAL", "return 1", 0), None),
        (("XINFO", "GROUPS", "s"), "s"),
        (("XGROUP", "CREATE", "s", "g", "0"), "s"),
        (("TIME",), None),
        (("xack", "s", "g", "1-0"), "s"),
    ],
)
def test_a_command_goes_where_its_first_key_is(words: Sequence[Argument], key: str | None) -> None:
    assert key_of(words) == key


def test_letters_of_a_region_go_to_the_runs_slot_before_the_region_acknowledges() -> None:
    settlement = Settlement()
    error = RefusedError(pb.ReasonCode.REASON_POISON, "never right")
    settlement.reject(Delivery("esper:{a/r0}:telemetry", "regional", "1-0", b"junk", 1, "c"), error)
    settlement.write("esper:{a/r0}:regional", b"sum")

    letters, rest = settlement.by_slot()

    assert [write.stream for write in letters.writes] == ["esper:{a}:dead"]
    assert letters.acks == {} and rest.dead == []
    assert [write.stream for write in rest.writes] == ["esper:{a/r0}:regional"]
    assert list(rest.acks) == [("esper:{a/r0}:telemetry", "regional", "c")]


def test_what_has_one_slot_is_one_call() -> None:
    settlement = Settlement()
    settlement.reject(Delivery("esper:{a}:votes", "g", "1-0", b"junk", 1, "c"), RefusedError(1, "never right"))

    assert settlement.by_slot() == [settlement]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("rediss://h1:6379/0?db=1&ssl_ca_certs=/run/ca.pem", "rediss://h1:6379/0?db=1&ssl_ca_certs=/run/ca.pem"),
        ("redis://me:secret@h1:6379/0", "redis://h1:6379/0"),
        ("redis://me:se@cret@h1:6379/0", "redis://h1:6379/0"),
        ("redis://h1?username=me&password=secret", "redis://h1"),
        ("unix://me:secret@/run/r@1.sock?db=1&password=secret", "unix:///run/r@1.sock?db=1"),
        ("redis://h1?db=1&password_file=/run/w.env", "redis://h1?db=1"),
    ],
)
def test_a_url_without_a_user_names_none(url: str, expected: str) -> None:
    assert nameless(url) == expected


def test_a_password_among_the_options_goes_before_that_of_the_environment() -> None:
    given = {"ESPER_REDIS_USERNAME": "other", "ESPER_REDIS_PASSWORD": "theirs"}

    url = completed("redis://h1?username=me&password=mine", given)

    settings = connect.writer(url).connection_pool.connection_kwargs
    assert (settings["username"], settings["password"]) == ("me", "mine")
