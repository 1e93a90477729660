"""A notebook attaches as often as its cells are run: nothing of a session is left once it is closed."""

from __future__ import annotations

import gc
import os
import threading
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

import esper
from esper.bus import connect
from tests.seed_kit import new_host, optimizer_of
from tests.session_kit import train
from tests.system.scripted import Script


async def connections(redis: connect.Redis) -> set[bytes]:
    """By number: no two of a server's life have the same."""
    return {line.split()[0] for line in (await redis.ask(("CLIENT", "LIST"))).splitlines()}


async def left(redis: connect.Redis, host: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """What a session could leave behind, by how many there are."""
    for thread in set(threading.enumerate()) - {threading.main_thread()}:
        if thread.name == "esper-alarm":  # it hears of the runtime's end, and ends a moment later
            thread.join(60.0)
    gc.collect()
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    hooks = sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in host.modules())
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "children": len(children.read_text().split()),
        "hooks": hooks + len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks),
        "objects": len(gc.get_objects()),
    }


async def test_sessions_one_after_the_other_leave_nothing_behind(
    redis: connect.Redis, redis_url: str, run_id: str, tmp_path: Path
) -> None:
    host = new_host()
    optimizer = optimizer_of("sgd", list(host.parameters()))
    environment, seen = Script(redis_url, run_id, tmp_path).environment(), list[dict[str, int]]()
    before = await connections(redis)  # some of which may end meanwhile: of runtimes whose test is over
    grew: list[int] = []  # in objects, from the second session on: what is kept once, and not by each, is no leak

    while len(seen) < 4 or (min(grew) > 0 and len(seen) < 12):  # a leak grows by each; other tests' objects come late
        with esper.attach(host, optimizer=optimizer, sites=["body"], environment=environment) as run:
            train(run, host, 3)
        del run
        seen.append(await left(redis, host, optimizer))
        grew = [after["objects"] - before["objects"] for before, after in pairwise(seen[1:])]

    assert min(grew) <= 0, grew
    assert {**seen[-1], "objects": 0} == {**seen[1], "objects": 0}
    assert await connections(redis) <= before
