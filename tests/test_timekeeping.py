"""A process asks for the server's clock once a second, whoever of it asks."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

from esper.bus import names
from esper.bus.connect import Redis, ServerClock, writer
from esper.bus.group.inbox import Inbox
from esper.runtime import access
from esper.runtime.operations.health import Health
from esper.runtime.operations.upkeep import HealthEndpoint, RoleDuties, kept_up
from esper.runtime.operations.vitals import Look
from esper.runtime.serving.refusals import Refusals
from esper.runtime.settings import Settings
from esper.runtime.timekeeping import look_again
from tests.bus_kit import own_server
from tests.many_servers import free_ports
from tests.scripted import ScriptedRun

NUM_ASKED = 20


class Watched(ServerClock):
    """One at which somebody else looks again and again."""

    def __init__(self) -> None:
        self._looks = count()
        super().__init__()

    @property
    def num_looks(self) -> int:
        return next(self._looks)

    @num_looks.setter
    def num_looks(self, _: int) -> None:
        """Counted by each look at it."""


async def num_asked(redis: Redis) -> int:
    """How often the server was asked for the time."""
    return int((await redis.info("commandstats")).get("cmdstat_time", {"calls": 0})["calls"])


@pytest.mark.parametrize("kind", [ServerClock, Watched])
async def test_a_clock_at_which_another_looks_is_left_to_it(short_directory: Path, kind: type[ServerClock]) -> None:
    with own_server(short_directory) as server:
        async with writer(server.url) as redis, asyncio.timeout(60):
            looking = asyncio.create_task(look_again(kind(), redis, 0.0))
            for _ in range(NUM_ASKED):
                await redis.execute_command("PING")
            while kind is ServerClock and await num_asked(redis) < NUM_ASKED:
                assert not looking.done()
            looking.cancel()
            await asyncio.wait([looking])

            assert (await num_asked(redis) == 0) == (kind is Watched)


async def test_the_look_at_redis_puts_the_clock_of_its_process_right(redis: Redis) -> None:
    clock = ServerClock()

    await Look(redis, Health(), clock=clock).look()

    assert (clock.num_looks, clock.has_been_at(clock.now_ms())) == (1, True)


async def test_what_a_process_shows_is_looked_at_by_its_clock(run: ScriptedRun) -> None:
    clock, inbox = ServerClock(), Inbox(run.redis, run.redis, names.key(run.run_id, "votes"), "group", "c")
    [port], found = free_ports(1), await access.find(run.name)
    endpoint = HealthEndpoint("runtime", Settings(name="worker-0", region="r0", metrics_port=port), found)

    async with kept_up(endpoint, [inbox], Refusals(), RoleDuties(clock=clock)):
        assert clock.num_looks >= 1  # at once, and every second
