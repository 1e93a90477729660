"""/metrics and /healthz as a supervisor meets them: health is progress."""

from __future__ import annotations

import asyncio
import time

import pytest
from prometheus_client import CollectorRegistry, Counter

from esper.bus.connect import Redis
from esper.bus.inbox import Inbox
from esper.bus.names import key
from esper.errors import SettingError
from esper.runtime.metrics import Health, endpoint, listen, watch_inboxes
from esper.runtime.settings import Settings
from tests.bus_kit import drain, put


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
    heir = Inbox(redis_reader, redis, stream, "group", "heir", reclaim_after_ms=0)
    await drain(heir)
    watch_inboxes(registry, health, [heir])

    async with await listen("127.0.0.1", 0, registry, health) as server:
        status, body = await got(server.sockets[0].getsockname()[1], "/metrics?x=1")

    assert status == "HTTP/1.1 200 OK"
    assert "esper_commands_applied_total 3.0" in body.splitlines()
    assert f'esper_entries_reclaimed_total{{group="group",stream="{stream}"}} 2.0' in body.splitlines()


async def test_health_follows_progress_and_names_what_stands_still() -> None:
    now_s, polled_s = 100.0, 95.0
    health = Health(clock=lambda: now_s, stale_s=10.0)
    health.watch("votes", lambda: polled_s)

    async with await listen("127.0.0.1", 0, CollectorRegistry(), health) as server:
        port = server.sockets[0].getsockname()[1]
        well = await got(port, "/healthz")
        now_s = 105.5
        ill = await got(port, "/healthz")
        polled_s = 105.0
        well_again = await got(port, "/healthz")

    assert well == well_again == ("HTTP/1.1 200 OK", "ok\n")
    assert ill == ("HTTP/1.1 503 Service Unavailable", "votes: no progress for 10.5 s\n")


def test_an_inbox_that_is_held_back_on_purpose_is_well(redis: Redis, redis_reader: Redis, run_id: str) -> None:
    health = Health(clock=lambda: time.monotonic() + 60.0)
    inbox = Inbox(redis_reader, redis, key(run_id, "commands"), "group", "c")
    watch_inboxes(CollectorRegistry(), health, [inbox])

    complaints = [len(health.complaints())]
    for held_back in (True, False):
        inbox.held_back = held_back
        complaints.append(len(health.complaints()))

    assert complaints == [1, 0, 1]


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
