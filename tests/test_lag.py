"""A lag that a server of 7.0 tells wrongly after it was started again is none where everything was handed out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from esper.bus import connect
from esper.bus.embedded import EmbeddedRedis
from esper.bus.group.backlog import waiting
from tests.server_kit import newer_server


@pytest.fixture
async def newer(short_directory: Path) -> AsyncIterator[connect.Redis]:
    with EmbeddedRedis(short_directory / "lag", binary=newer_server()) as server:
        async with connect.writer(server.url) as redis:
            yield redis


async def test_what_was_handed_out_and_settled_does_not_wait(newer: connect.Redis) -> None:
    await newer.execute_command("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for _ in range(3):
        await newer.execute_command("XADD", "s", "*", "m", "x")
    await newer.execute_command("XGROUP", "SETID", "s", "g", "$", "ENTRIESREAD", "1")  # as 7.0.15 counts afterwards
    told = (await newer.xinfo_groups("s"))[0]["lag"]

    settled = await waiting(newer, "s", "g")
    await newer.execute_command("XADD", "s", "*", "m", "x")

    assert (told, settled) == (2, 0)
    assert await waiting(newer, "s", "g") >= 1
