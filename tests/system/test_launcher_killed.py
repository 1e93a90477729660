"""Ranks whose torchrun was killed outright leave their run to the group that takes their place."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.system.launched import Coordinated, Launched, listed
from tests.system.processes import Start, processes

START_S = 100.0  # of an agent and its ranks, on a machine that is busy otherwise
ENDS_S = 60.0  # patience too: a busy machine is no failure
ENDS = "to nobody: it ends too"


@pytest.fixture
async def launched(redis_url: str, run_id: str, tmp_path: Path, born: Start, ranks: Start) -> AsyncIterator[Launched]:
    name = run_id.replace("-", "")
    await listed(redis_url, name, run_id)
    started = Coordinated(redis_url, run_id, tmp_path, name, start=born, launch=ranks, CHECKPOINT_EVERY="50")
    yield started
    started.close()


async def test_ranks_end_within_seconds_of_their_torchrun(launched: Launched) -> None:
    async with launched.controller() as run:
        await run.epochs(1, START_S)
        ranks = {launched.rank(0), launched.rank(1)}

        launched.started["torchrun-0"].send_signal(signal.SIGKILL)
        async with asyncio.timeout(ENDS_S):
            while ranks & processes(launched.directory).keys() or ENDS not in launched.said("torchrun-0"):
                await asyncio.sleep(0.1)  # one that heard no alarm was killed, and its runtime says it after that
