"""A runtime that begins beside a Redis that takes nothing: its trainer is told why, while it waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from esper.bus.connect import Redis, writer
from esper.bus.embedded import EmbeddedRedis
from esper.bus.faults import FailingDiskError, OutOfMemoryError, UnavailableError
from esper.runtime.beside import assembly
from esper.runtime.beside.namesake import Newcomer
from esper.session.options import READY_S
from tests.beside_kit import ME, Run
from tests.bus_kit import fill_disk, free_disk, put

NUM_FILLING = 10_000


@pytest.fixture
def server(short_directory: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(short_directory / "takes-nothing") as own:
        yield own
        free_disk(own)


async def fill(server: EmbeddedRedis, redis: Redis) -> None:
    fill_disk(server)
    with suppress(FailingDiskError):
        await put(redis, "filling", *[b"met"] * NUM_FILLING)


async def use_up(_: EmbeddedRedis, redis: Redis) -> None:
    await redis.config_set("maxmemory", "1")


@pytest.mark.parametrize(
    ("harm", "error"), [(fill, FailingDiskError), (use_up, OutOfMemoryError)], ids=["disk", "memory"]
)
async def test_it_ends_with_the_reason_before_its_trainer_has_waited_for_long_enough(
    server: EmbeddedRedis,
    run_id: str,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[EmbeddedRedis, Redis], Awaitable[None]],
    error: type[UnavailableError],
) -> None:
    assert assembly.PATIENCE_S + assembly.WRITE_PATIENCE_S < READY_S
    monkeypatch.setattr(assembly, "WRITE_PATIENCE_S", 0.0)
    async with writer(server.url) as redis:
        steered = Run(redis, server.url, run_id)
        await harm(server, redis)

        with pytest.raises(error):
            async with asyncio.timeout(READY_S), steered.runtime(newcomer=Newcomer(ME)):
                pass
