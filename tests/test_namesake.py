"""Who can't be in a run beside a worker is refused in one sentence, for as long as that one beats."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace

import pytest

from esper.bus import connect, names
from esper.bus.publisher import Publisher
from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.runtime.beside import namesake
from esper.runtime.beside.namesake import RECENT_MS, Newcomer, require_alone
from tests.rounds import heartbeat

LONG_S = 3_600.0


@dataclass
class First:
    """A worker-0 that is in the run, and the look that a second one takes before it begins."""

    redis: connect.Redis
    run_id: str
    beaten_ms: int | None = None  # last, by the server's clock: a stall of the machine is no silence

    def __post_init__(self) -> None:
        keys = MasterKeyring.new(time.time_ns()).derive(self.run_id, [Role.WORKER])
        self._sealer = Sealer(keys, Role.WORKER, "worker-0")
        self._opener = Opener(keys, name="worker-0", guard=None, accept=[Domain.HEARTBEAT])

    async def beat(
        self, *, world_size: int = 1, leaves: bool = False, repeated: bool = False, others: Sequence[bytes] = ()
    ) -> None:
        await self._say(self._sealed(world_size, leaves=leaves, repeated=repeated), *others)

    async def beat_twice(self, *, world_size: int) -> None:
        """By itself, and at once through its runtime: nobody finds the one without the other."""
        await self._say(self._sealed(world_size), self._sealed(world_size, repeated=True))

    def _sealed(self, world_size: int, *, leaves: bool = False, repeated: bool = False) -> bytes:
        beat = heartbeat(0, 41, world_size=world_size)
        beat.repeated = repeated
        if leaves:
            beat.report.CopyFrom(pb.WorkerReport(worker="worker-0"))
        return self._sealer.seal(beat)

    async def _say(self, *sealed: bytes) -> None:
        ids = await Publisher(self.redis).add_many(names.key(self.run_id, "heartbeats"), sealed)
        self.beaten_ms = entry_ms(ids[-1])

    async def look(
        self, name: str = "worker-0", world_size: int = 1, *, later_ms: int = 0, watch_s: float = LONG_S
    ) -> None:
        now_ms = (self.beaten_ms or await connect.server_ms(self.redis)) + later_ms
        await require_alone(self.redis, self.run_id, Newcomer(name, world_size), self._opener, now_ms, watch_s)


@pytest.fixture
def first(redis: connect.Redis, run_id: str) -> First:
    return First(redis, run_id)


@pytest.mark.parametrize(
    ("of", "name", "world_size", "why"),
    [
        (1, "worker-0", 1, r"name of this worker .* is 'worker-0'; .* stands at step 41$"),
        (2, "worker-0", 2, r"is 'worker-0, one of 2'; expected a run of its own .*: worker-0, one of 2, stands"),
        (2, "north", 1, r"is 'north, one of 1'; .* worker-0, one of 2, stands .* or workers in none$"),
        (1, "worker-1", 2, r"is 'worker-1, one of 2'; .* worker-0, one of 1, stands"),
    ],
)
async def test_while_the_first_one_beats_who_can_not_be_beside_it_is_refused(
    first: First, of: int, name: str, world_size: int, why: str
) -> None:
    await first.beat(world_size=of)
    looking = asyncio.create_task(first.look(name, world_size))

    while not looking.done():
        await first.beat(world_size=of)

    with pytest.raises(SettingError, match=why):
        await looking


async def test_what_others_have_written_since_hides_nobody(first: First) -> None:
    """Junk, or the heartbeats of hundreds of workers."""
    await first.beat(others=[b"junk"] * 1_000)
    looking = asyncio.create_task(first.look())
    for _ in range(20):
        await first.redis.ping()  # by now it has looked at what lies there

    while not looking.done():
        await first.beat()

    with pytest.raises(SettingError, match="stands at step 41"):
        await looking


async def test_words_that_its_runtime_repeats_between_its_own_hide_no_rank(first: First) -> None:
    """As of one whose steps take a little longer than half a second."""
    await first.beat_twice(world_size=2)
    looking = asyncio.create_task(first.look("north"))

    while not looking.done():
        await first.beat_twice(world_size=2)

    with pytest.raises(SettingError, match=r"worker-0, one of 2, stands"):
        await looking


async def test_a_machine_that_stood_still_lets_nobody_in(first: First, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look seems to have taken 10 s, in which neither of the two could say anything."""
    monkeypatch.setattr(namesake, "time", SimpleNamespace(monotonic=count(step=10.0).__next__))
    await first.beat()
    looking = asyncio.create_task(first.look())
    await asyncio.sleep(1.5 * namesake.LOOK_S)

    while not looking.done():
        await first.beat()

    with pytest.raises(SettingError, match="stands at step 41"):
        await looking


async def test_one_beat_that_was_on_its_way_refuses_nobody(first: First) -> None:
    await first.beat()
    looking = asyncio.create_task(first.look(watch_s=0.3))

    await first.beat()

    await looking


async def test_one_that_falls_silent_is_waited_for_no_longer(first: First) -> None:
    await first.beat(world_size=2)

    await first.look("north", later_ms=RECENT_MS - 200)


async def test_nothing_is_waited_for_where_the_name_is_free(first: First) -> None:
    await first.look()
    await first.beat()
    await first.look("worker-1")
    await first.look(later_ms=RECENT_MS + 1_000)
    await first.beat(leaves=True)
    await first.look()


async def test_a_group_takes_the_place_of_one_whose_ranks_hang(first: First) -> None:
    """The runtime beside a rank repeats its word for as long as it lives."""
    await first.beat(world_size=2, repeated=True)

    await first.look(world_size=2)
    await first.look("north")


async def test_ranks_of_one_group_begin_beside_one_another(first: First) -> None:
    await first.beat(world_size=2)

    await first.look("worker-1", 2)
