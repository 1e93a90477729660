"""Two nodes, each with a torchrun of its own, that meet by their rendezvous are one run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from esper.bus import connect, runs
from esper.client import Receipt
from tests.system.launched import Launched

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

START_S = 100.0  # of two agents and their ranks, on a machine that is busy otherwise


@pytest.fixture
async def launched(redis_url: str, run_id: str, tmp_path: Path) -> AsyncIterator[Launched]:
    name = run_id.replace("-", "")
    async with connect.writer(redis_url) as redis:
        await runs.announce_outside(redis, name, run_id)
    started = Launched(redis_url, run_id, tmp_path, name, num_nodes=2, CHECKPOINT_EVERY="50")
    yield started
    started.close()


async def where(receipt: Receipt) -> dict[str, int]:
    """By worker, the step before which it carried it out."""
    return {each.worker: each.step for each in await receipt.applied()}


async def test_a_command_takes_effect_before_one_step_on_both_nodes(launched: Launched) -> None:
    async with launched.controller() as run:
        await run.epochs(1, START_S)
        steps = await where(await run.germinate("s", site="head", blueprint="mlp", hidden=8))
        trained = await where(await run.start_training("s"))
    last = await asyncio.to_thread(launched.ended, START_S)

    assert set(steps) == set(trained) == {"worker-0", "worker-1"}
    assert len(set(steps.values())) == len(set(trained.values())) == 1
    assert last[0] == last[1]
    assert all("ended at step" in launched.said(node) for node in launched.nodes)
