"""A second replica of one name is refused in one sentence, for as long as the first one beats."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import pytest

from esper.bus import connect, names
from esper.bus.publisher import Publisher
from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.leyline.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.runtime.namesake import RECENT_MS, require_alone
from tests.rounds import heartbeat

LONG_S = 3_600.0


@dataclass
class First:
    """A worker-0 that is in the run, and the look that a second one takes before it begins."""

    redis: connect.Redis
    run_id: str

    def __post_init__(self) -> None:
        keys = MasterKeyring.new(time.time_ns()).derive(self.run_id, [Role.WORKER])
        self._sealer = Sealer(keys, Role.WORKER, "worker-0")
        self._opener = Opener(keys, name="worker-0", guard=None, accept=[Domain.HEARTBEAT])

    async def beat(self, *, world_size: int = 1, leaves: bool = False) -> None:
        beat = heartbeat(0, 41, world_size=world_size)
        if leaves:
            beat.report.CopyFrom(pb.WorkerReport(worker="worker-0"))
        await Publisher(self.redis).add(names.key(self.run_id, "heartbeats"), self._sealer.seal(beat))

    async def look(self, name: str = "worker-0", *, later_ms: int = 0, watch_s: float = LONG_S) -> None:
        now_ms = await connect.server_ms(self.redis) + later_ms
        await require_alone(self.redis, self.run_id, name, self._opener, now_ms, watch_s)


@pytest.fixture
def first(redis: connect.Redis, run_id: str) -> First:
    return First(redis, run_id)


async def test_while_the_first_one_beats_the_second_is_refused(first: First) -> None:
    await first.beat()
    looking = asyncio.create_task(first.look())

    while not looking.done():
        await first.beat()

    with pytest.raises(SettingError, match=r"name of this worker .* is 'worker-0'; .* stands at step 41$"):
        await looking


async def test_one_beat_that_was_on_its_way_refuses_nobody(first: First) -> None:
    await first.beat()
    looking = asyncio.create_task(first.look(watch_s=0.3))

    await first.beat()

    await looking


async def test_nothing_is_waited_for_where_the_name_is_free(first: First) -> None:
    await first.look()
    await first.beat()
    await first.look("worker-1")
    await first.look(later_ms=RECENT_MS + 1_000)
    await first.beat(leaves=True)
    await first.look()


async def test_ranks_of_a_process_group_are_let_be(first: First) -> None:
    await first.beat(world_size=2)

    await first.look()
