"""/metrics, /healthz and /readyz as a supervisor meets them: alive while it reads, ready while Redis serves it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from esper.bus.connect import Redis
from esper.bus.group.consumer import Pace
from esper.bus.group.inbox import Inbox
from esper.bus.names import key
from esper.errors import SettingError
from esper.leyline.keys.rolekeys import Validity
from esper.runtime.operations.figures import watch_inboxes
from esper.runtime.operations.health import Health, Vitals
from esper.runtime.operations.metrics import endpoint, listen
from esper.runtime.settings import Settings
from tests.bus_kit import drain, put

DAY_NS = 86_400 * 10**9


async def asked(port: int, request: bytes) -> tuple[str, str]:
    """Status line and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return head.splitlines()[0] if head else "", body


async def got(port: int, path: str) -> tuple[str, str]:
    return await asked(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_metrics_show_what_is_registered_and_what_inboxes_count(
    redis: Redis, redis_reader: Redis, run_id: str
) -> None:
    registry, health = CollectorRegistry(), Health()
    Counter("esper_commands_applied", "Commands", registry=registry).inc(3)
    stream = key(run_id, "votes")
    await put(redis, stream, b"1", b"2")
    await drain(Inbox(redis_reader, redis, stream, "group", "dead"))
    heir = Inbox(redis_reader, redis, stream, "group", "heir", Pace(reclaim_after_ms=0))
    await drain(heir)
    watch_inboxes(registry, health, [heir])

    async with await listen("127.0.0.1", 0, registry, health) as server:
        status, body = await got(server.sockets[0].getsockname()[1], "/metrics?x=1")

    assert status == "HTTP/1.1 200 OK"
    assert "esper_commands_applied_total 3.0" in body.splitlines()
    assert f'esper_entries_reclaimed_total{{group="group",stream="{stream}"}} 2.0' in body.splitlines()
    assert f'esper_entries_redelivered_total{{group="group",stream="{stream}"}} 2.0' in body.splitlines()


def served(now_s: float, **seen: Any) -> Vitals:
    """Redis as it is seen when all is well."""
    well: dict[str, Any] = {"answered_s": now_s, "up_since_s": 0.0, "round_trip_s": 0.001, "skew_s": 0.01}
    return Vitals(**well | seen)


async def told(port: int, path: str) -> tuple[str, dict[str, str]]:
    """Status line, and the checks that are not ok with what was met."""
    status, body = await got(port, path)
    content = json.loads(body)
    assert content["role"] == "coordinator"
    return status, {check["check"]: check["met"] for check in content["checks"] if check["status"] != "ok"}


WELL: tuple[str, dict[str, str]] = ("HTTP/1.1 200 OK", {})


async def test_what_stands_still_while_redis_answers_is_not_alive() -> None:
    now_s, polled_s = 100.0, 95.0
    health = Health({"role": "coordinator"}, clock=lambda: now_s, stale_s=10.0)
    health.watch("votes", lambda: polled_s)

    async with await listen("127.0.0.1", 0, CollectorRegistry(), health) as server:
        port = server.sockets[0].getsockname()[1]
        health.vitals = served(now_s)
        well = await told(port, "/healthz")
        now_s = 105.5
        health.vitals = served(now_s)
        ill = await told(port, "/healthz")
        polled_s = 105.0
        well_again = await told(port, "/healthz")

    assert well == well_again == WELL
    assert ill == ("HTTP/1.1 503 Service Unavailable", {"progress of votes": "no progress for 10.5 s"})


async def test_a_redis_that_is_away_makes_a_process_unready_and_lets_it_live() -> None:
    now_s = 100.0
    health = Health({"role": "coordinator"}, clock=lambda: now_s)
    health.watch("votes", lambda: 40.0)
    health.vitals = served(40.0, why="Redis at unix:// cannot be reached")

    async with await listen("127.0.0.1", 0, CollectorRegistry(), health) as server:
        port = server.sockets[0].getsockname()[1]
        away = [await told(port, path) for path in ("/healthz", "/readyz")]
        health.vitals = served(now_s, up_since_s=now_s)
        back = await told(port, "/healthz")
        now_s = 111.0
        health.vitals = served(now_s, up_since_s=100.0)
        stuck = await told(port, "/healthz")

    assert away[0] == back == WELL
    assert away[1][0] == "HTTP/1.1 503 Service Unavailable"
    assert away[1][1]["redis"] == "Redis at unix:// cannot be reached"
    assert stuck[0] == "HTTP/1.1 503 Service Unavailable"


@pytest.mark.parametrize(
    ("seen", "check", "status"),
    [
        ({"skew_s": -3600.0}, "clock", "warn"),
        ({"skew_s": 1.5}, "clock", "warn"),
        ({"waiting": "outbox waits: Redis is out of memory"}, "redis", "fail"),
        ({"answered_s": 90.0}, "redis", "fail"),
        ({"lags_s": {("votes", "coordinator"): 10.5}}, "lag of votes (coordinator)", "fail"),
        ({"lags_s": {("votes", "coordinator"): 2.5}}, "lag of votes (coordinator)", "warn"),
        ({"lags_s": {("held", "coordinator"): 99.0}}, "lag of held (coordinator)", "ok"),
    ],
)
def test_readiness_names_what_is_wrong_and_what_to_do(seen: dict[str, Any], check: str, status: str) -> None:
    health = Health(clock=lambda: 100.0)
    health.sources = {("votes", "coordinator"): lambda: False, ("held", "coordinator"): lambda: True}
    health.vitals = served(100.0, **seen)

    found = {finding.check: finding for finding in health.ready()}

    assert found[check].status == status
    assert bool(found[check].todo) == (status != "ok")
    assert [each.status for name, each in found.items() if name != check] == ["ok"] * (len(found) - 1)


@pytest.mark.parametrize(
    ("validities", "status", "met"),
    [
        ([(0, 30)], "ok", "valid for 20 days"),
        ([(0, 12), (11, 15)], "warn", "valid for 5 days"),
        ([(0, 12), (13, 40)], "warn", "valid for 2 days"),
        ([(0, 9), (11, 40)], "fail", "no key that is valid now"),
        ([], "fail", "no key that is valid now"),
    ],
)
def test_a_keyring_is_fit_while_some_key_is_valid_without_a_gap(
    validities: list[tuple[int, int]], status: str, met: str
) -> None:
    keys = [Validity(number, start * DAY_NS, end * DAY_NS) for number, (start, end) in enumerate(validities)]
    health = Health(clock=lambda: 100.0)
    health.keys, health.now_ns, health.vitals = (lambda: keys), (lambda: 10 * DAY_NS), served(100.0)

    [found] = [finding for finding in health.ready() if finding.check == "keyring"]

    assert (found.status, found.met) == (status, met)


def test_a_key_is_valid_by_the_clock_of_redis_which_is_sealed_by() -> None:
    health = Health(clock=lambda: 100.0)
    health.keys, health.now_ns = (lambda: [Validity(1, 0, 12 * DAY_NS)]), (lambda: 30 * DAY_NS)
    health.vitals = served(100.0, skew_s=20 * 86_400.0)

    [found] = [finding for finding in health.ready() if finding.check == "keyring"]

    assert (found.status, found.met) == ("warn", "valid for 2 days")


def test_an_inbox_that_is_held_back_on_purpose_is_well(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    later_s = time.monotonic() + 60.0
    health = Health(clock=lambda: later_s)
    health.vitals = served(later_s)
    inbox = Inbox(redis_reader, redis, key(run_id, "commands"), "group", "c")
    watch_inboxes(CollectorRegistry(), health, [inbox])

    found = []
    for held_back in (True, False):
        inbox.held_back = held_back
        found += [finding.status for finding in health.live()]

    assert found == ["ok", "fail"]


@pytest.mark.parametrize("request_", [b"\r\n\r\n", b"GET\r\n\r\n", b"GET /etc/passwd HTTP/1.1\r\n\r\n"])
async def test_anything_else_is_not_found(request_: bytes) -> None:
    async with await listen("127.0.0.1", 0, CollectorRegistry(), Health()) as server:
        status, _ = await asked(server.sockets[0].getsockname()[1], request_)

    assert status == "HTTP/1.1 404 Not Found"


async def test_a_request_without_end_is_cut_off() -> None:
    async with await listen("127.0.0.1", 0, CollectorRegistry(), Health()) as server:
        status, _ = await asked(server.sockets[0].getsockname()[1], b"x" * 20_000)

    assert status == ""


async def test_nothing_listens_unless_a_port_is_given() -> None:
    async with endpoint(Settings(), CollectorRegistry(), Health()) as port:
        assert port == 0


async def test_a_port_in_use_is_named() -> None:
    async with await listen("127.0.0.1", 0, CollectorRegistry(), Health()) as server:
        taken = server.sockets[0].getsockname()[1]

        with pytest.raises(
            SettingError, match=f"ESPER_METRICS_PORT is '127.0.0.1:{taken}'; expected an address that is"
        ):
            async with endpoint(Settings(metrics_port=taken), CollectorRegistry(), Health()):
                pass
