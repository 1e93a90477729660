"""Two ranks that torchrun starts find their run by name, are steered alike, and outlive the death of one of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from esper.bus import names
from esper.client import Controller
from tests.system.launched import Coordinated, Launched, gone_past, listed, step_of
from tests.system.processes import Start

START_S = 100.0  # of torchrun and two ranks, on a machine that is busy otherwise


@pytest.fixture(params=["", "--shard"], ids=["each with a copy", "split by fully_shard"])
def launched(
    request: pytest.FixtureRequest, redis_url: str, run_id: str, tmp_path: Path, born: Start, launch: Start
) -> Iterator[Launched]:
    name = run_id.replace("-", "")
    asyncio.run(listed(redis_url, name, run_id))
    given = [request.param] if request.param else []
    started = Coordinated(
        redis_url, run_id, tmp_path, name, start=born, launch=launch, arguments=given, CHECKPOINT_EVERY="50"
    )
    yield started
    started.close()


async def steered(run: Controller) -> list[int]:
    """Steps before which a seed grows and is culled, the run is paused and goes on, and goes back."""
    steps = [await step_of(await run.germinate("s", site="head", blueprint="mlp", hidden=8))]
    steps.append(await step_of(await run.create_seed_optimizer("s", lr=3e-3)))
    steps.append(await step_of(await run.start_training("s")))
    [first, second] = await run.persist(run.start_grafting, "s", steps=20, attempts=30)
    assert first.step == second.step
    steps += [first.step, await step_of(await run.cull("s"))]
    paused = await step_of(await run.pause())
    assert await step_of(await run.resume()) == paused
    [first, second] = await run.persist(run.rollback, reason="as a test", held_by="no_snapshot")
    assert first.step == second.step
    return [*steps, paused, first.step]


async def generation(launched: Launched) -> int:
    """Of the ranks as the newest decision names them."""
    return int((await launched.messages(names.key(launched.run_id, "decisions")))[-1].roster_generation)


async def test_they_are_steered_alike_and_go_on_after_one_is_killed(launched: Launched) -> None:
    async with launched.controller() as run:
        await run.epochs(1, START_S)
        steps = await steered(run)
        killed = await run.epochs(1)
        before = max(beat.step for beat in killed.values())
        met = await generation(launched)
        os.kill(launched.rank(1), signal.SIGKILL)
        await run.until(gone_past(killed), START_S)
        again = await step_of(await run.germinate("again", site="hidden", blueprint="lora", rank=2))
        met_again = await generation(launched)
    last = await asyncio.to_thread(launched.ended)

    assert steps == sorted(steps)
    assert again > before and met_again > met
    assert last[0] == last[1] and last[0][0] >= again  # that step may be an epoch's last
    assert launched.said_by_ranks().count("run.resumed") == 2
    assert {process.poll() for name, process in launched.started.items() if name not in launched.nodes} == {None}
