"""A server of a run that is told to stop beside a silent Redis ends by itself, and is not killed for it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import structlog

from esper.bus import connect
from esper.leyline.kinds import Role
from esper.runtime.process import Main
from esper.runtime.quitting import unless_silent
from esper.workers import coordinator, global_, regional
from tests.bus_kit import own_server, standing_still
from tests.scripted import ScriptedRun, listed

SOON_S = 60.0  # only a failure takes as long: without the probe all that is waited for takes 600 s
TOLD: dict[str, tuple[Main, Role]] = {
    "coordinator": (coordinator.main, Role.COORDINATOR),
    "regional": (regional.main, Role.REGIONAL),
    "global": (global_.main, Role.GLOBAL),
}


@pytest.fixture(autouse=True)
def _it_alone_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esper.runtime.quitting.LAST_READ_S", 0.0)
    monkeypatch.setattr("esper.bus.drive.MARGIN_S", 600.0)
    monkeypatch.setattr("esper.bus.connect.WRITE_S", 600.0)


def told(run: ScriptedRun, folder: Path, keys: Role, patch: pytest.MonkeyPatch) -> None:
    """In the environment, what the process of this role is to know."""
    path = folder / f"{run.name}.json"
    run.master.derive(run.run_id, [keys]).save(path)
    given = {"RUN": run.run_id, "REDIS_URL": run.url, "KEYRING": str(path), "NAME": "silent", "LOG": "json"}
    for name, value in {**given, "REGION": "r0", "REGIONS": "r0"}.items():
        patch.setenv(f"ESPER_{name}", value)


@pytest.mark.parametrize("role", TOLD)
async def test_it_ends_in_order_and_leaves_nothing_under_way(
    role: str, short_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, keys = TOLD[role]
    before = structlog.get_config()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(own_server(short_directory))
        redis = await stack.enter_async_context(connect.writer(server.url))
        run = stack.enter_context(listed(short_directory, server.url, redis, monkeypatch))
        stack.callback(structlog.contextvars.clear_contextvars)
        stack.callback(structlog.configure, **before)
        told(run, tmp_path, keys, monkeypatch)
        stopping, tasks = asyncio.Event(), asyncio.all_tasks()
        serving = asyncio.ensure_future(main(stopping))
        while not (await redis.info("clients"))["blocked_clients"]:
            assert not serving.done()

        with standing_still(server):
            stopping.set()
            async with asyncio.timeout(SOON_S):
                await serving
            left = asyncio.all_tasks() - tasks

    assert left == set()


async def test_it_is_waited_for_where_redis_answers(redis: connect.Redis) -> None:
    stopping = asyncio.Event()

    async def work() -> str:
        await stopping.wait()
        for _ in range(20):
            await redis.ping()
        return "settled"

    stopping.set()

    assert await unless_silent(work(), stopping, redis, "key") == "settled"
