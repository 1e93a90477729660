"""A rank of three in whose memory an element flips is named by the others, from epoch 100 on sent away, and mended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from esper.bus import names
from esper.leyline import contracts as pb
from tests.faults.processes import wait_until
from tests.system.flipped import FLIPPED, GO
from tests.system.launched import Coordinated, gone_past, listed
from tests.system.processes import PATIENCE_S, Start

START_S = 100.0  # of torchrun and three ranks, on a machine that is busy otherwise
VICTIM, NAMED, QUARANTINE_FROM = 1, "worker-1", 100


class Flipping(Coordinated):
    """Three ranks, of which each flips an element when it is told to."""

    script, num_ranks = "tests.system.flipped", 3

    def flip(self, rank: int) -> None:
        """In the memory of this one; returns once it is done."""
        os.kill(int((self.directory / f"rank-{rank}.pid").read_text()), signal.SIGUSR1)
        wait_until(lambda: FLIPPED in self.said_by_ranks(), "it is flipped", PATIENCE_S)

    async def compared(self) -> list[pb.BarrierCommit]:
        """Rounds so far in which all ranks had voted before the same step."""
        decisions = await self.messages(names.key(self.run_id, "decisions"))
        return [each for each in decisions if isinstance(each, pb.BarrierCommit) and each.digests_compared]

    def once(self, reached: Callable[[pb.BarrierCommit], bool]) -> list[pb.BarrierCommit]:
        """All that were compared, as soon as there is such a one."""
        found: list[pb.BarrierCommit] = []

        def is_reached() -> bool:
            found[:] = asyncio.run(self.compared())
            return any(map(reached, found))

        wait_until(is_reached, "such a round is over", START_S)
        return found


@pytest.fixture
def launched(redis_url: str, run_id: str, tmp_path: Path, born: Start, launch: Start) -> Iterator[Flipping]:
    name = run_id.replace("-", "")
    asyncio.run(listed(redis_url, name, run_id))
    started = Flipping(redis_url, run_id, tmp_path, name, start=born, launch=launch)
    yield started
    started.close()


async def flipped_while_paused(launched: Flipping) -> int:
    """Rounds that were compared before it. The next may still compare what was held where the pause took effect."""
    async with launched.controller() as run:
        await run.until(lambda _: True, START_S)
        await (await run.pause()).applied()
        num = len(await launched.compared())
        await asyncio.to_thread(launched.flip, VICTIM)
        await (await run.resume()).applied()
        return num


async def begun_anew(launched: Flipping) -> None:
    """Have epochs go by, until the ranks are other processes."""
    async with launched.controller() as run:
        before = await run.until(lambda _: True)
        (launched.directory / GO).touch()
        await run.until(gone_past(before), START_S)


def test_each_round_names_it_and_from_epoch_100_on_it_is_sent_away_and_begins_anew_equal(launched: Flipping) -> None:
    num_before = asyncio.run(flipped_while_paused(launched))
    launched.once(lambda commit: bool(commit.deviating))
    asyncio.run(begun_anew(launched))
    first = launched.once(lambda _: True)[0].roster_generation
    rounds = launched.once(lambda commit: commit.roster_generation > first)
    ended = launched.ended()

    met = [commit for commit in rounds if commit.roster_generation == first]
    sent_away_in = next(commit.round for commit in met if commit.epoch >= QUARANTINE_FROM)
    named_from = next(number for number, commit in enumerate(met) if commit.deviating)
    assert num_before <= named_from <= num_before + 1 and met[named_from].epoch < QUARANTINE_FROM
    assert [list(each.deviating) for each in rounds] == [
        [NAMED] * (named_from <= number < len(met)) for number in range(len(rounds))
    ]
    assert [each.round for each in rounds if each.quarantined] == [sent_away_in]
    assert f"round {sent_away_in}: {NAMED} is quarantined" in launched.said_by_ranks()
    assert sorted(ended) == [0, 1, 2] and len({*ended.values()}) == 1
