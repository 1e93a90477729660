"""Two nodes, each with a torchrun of its own, that meet by their rendezvous are one run."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from esper.client import Receipt
from tests.pages import typed_by
from tests.system.launched import Coordinated, Launched, gone_past, listed
from tests.system.processes import Start

START_S = 100.0  # of two agents and their ranks, on a machine that is busy otherwise


@pytest.fixture
async def launched(redis_url: str, run_id: str, tmp_path: Path, born: Start, launch: Start) -> AsyncIterator[Launched]:
    name = run_id.replace("-", "")
    await listed(redis_url, name, run_id)
    started = Coordinated(
        redis_url, run_id, tmp_path, name, num_nodes=2, start=born, launch=launch, CHECKPOINT_EVERY="50"
    )
    yield started
    started.close()


async def where(receipt: Receipt) -> dict[str, int]:
    """By worker, the step before which it carried it out."""
    return {each.worker: each.step for each in await receipt.applied()}


def options(command: str) -> dict[str, str]:
    """Of torchrun, by name."""
    return dict(re.findall(r"--([\w-]+)[ =](\S+)", command))


async def test_commands_take_effect_before_one_step_on_both_nodes_also_after_a_restart(launched: Launched) -> None:
    async with launched.controller() as run:
        await run.epochs(1, START_S)
        steps = await where(await run.germinate("s", site="head", blueprint="mlp", hidden=8))
        trained = await where(await run.start_training("s"))
        await run.epochs(4)
        killed = await run.until(lambda _: True)
        before = max(beat.step for beat in killed.values())
        os.kill(launched.rank(1), signal.SIGKILL)
        await run.until(gone_past(killed), START_S)
        again = await where(await run.cull("s"))
    last = await asyncio.to_thread(launched.ended, START_S)

    [page] = typed_by("tests/system/test_torchrun_nodes.py")
    typed = options(" ".join(map(str, launched.started["torchrun-0"].args)))
    shown = options(page.commands[-1])
    assert {**shown, **{name: typed[name] for name in ("rdzv-endpoint", "rdzv-id", "local-addr")}} == typed
    assert set(steps) == set(trained) == set(again) == {"worker-0", "worker-1"}
    assert [len(set(each.values())) for each in (steps, trained, again)] == [1, 1, 1]
    assert min(again.values()) > before
    assert last[0] == last[1]
    assert [launched.said(node).count("run.resumed") for node in launched.nodes] == [1, 1]
    assert all("ended at step" in launched.said(node) for node in launched.nodes)
