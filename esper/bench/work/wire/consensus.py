"""A round of the barrier by its rule alone, and real ones: proposal, votes and commit over Redis."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from esper.bench.arm import Ready
from esper.bench.effort import Effort
from esper.bench.figures import DERIVED, Figure
from esper.bench.rounds.town import Slice, ours
from esper.bench.statistics.samples import percentile
from esper.bench.work.wire.messages import vote
from esper.bus import connect
from esper.bus.embedded import EmbeddedRedis
from esper.leyline import contracts as pb
from esper.leyline.validate.bounds import PROMISE_STEPS
from esper.tamiyo.barrier import Barrier, Released

ROW, WORLD_SIZE, STEP = "consensus-round", 8, 400
TARGET_MS, ASPIRED_MS = 50.0, 40.0  # unified design, 7: consensus round
TARGET_PER_S = 20.0  # the same: more than 20 rounds a second
WARM, NUM_PINGS = 10, 300
NUM_ROUNDS = {"quick": 50, "gate": 200, "full": 2_000}
ROSTER = [f"worker-{rank}" for rank in range(WORLD_SIZE)]


def votes() -> list[pb.BarrierVote]:
    """Each at a step of its own, so that the highest is found or not."""
    cast = [vote(worker) for worker in ROSTER]
    for rank, each in enumerate(cast):
        each.step = STEP + rank
    return cast


def collected() -> Ready:
    """What no round does without: a vote of each kept by its name, and the highest step found."""
    cast = votes()

    def call() -> int:
        kept = {each.worker: each.step for each in cast}
        return max(kept.values()) + PROMISE_STEPS

    return Ready(call, answer=call)


def ruled() -> Ready:
    """Proposal, eight votes and the release, by the rule that knows neither clock nor Redis."""
    barrier, cast = Barrier(ROSTER, generation=1), votes()

    def call() -> Released:
        number = barrier.propose(0).round
        released = None
        for each in cast:
            each.round = number
            released = barrier.arrive(each, 1)
        if released is None:
            raise RuntimeError("the round was not released by the last vote")
        return released

    return Ready(call, answer=lambda: call().effective_step)


def rounds(effort: Effort) -> Iterator[Figure]:
    """From the proposal to the moment at which the last of eight runtimes has seen its commit."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, EmbeddedRedis(Path(name) / "redis") as server:
        per_process = WORLD_SIZE if effort.is_quick else 1
        with ours(server.url, Path(name), "rounds", WORLD_SIZE, per_process=per_process) as town:
            town.rounds(WARM)
            taken = town.rounds(NUM_ROUNDS[effort.mode])
        pings = asyncio.run(pinged(server.url))
    num_processes = WORLD_SIZE // per_process
    shape = f"8 runtimes in {num_processes} process{'es' if num_processes > 1 else ''}"
    yield from told(taken, shape)
    limit, found = percentile(pings, "p50"), percentile(taken.latencies_ms, "p50")
    yield Figure(ROW, "redis PING", "p50", limit, "ms", len(pings), shape=shape, samples=pings)
    num = len(taken.latencies_ms)
    yield Figure(ROW, "eight runtimes", "per limit", found / limit, "x", num, DERIVED, shape)


def told(taken: Slice, shape: str) -> Iterator[Figure]:
    values = taken.latencies_ms
    if len(values) < 2:
        raise RuntimeError(f"{len(values)} rounds came to a commit that every member saw")
    num, rate, unseen = len(values), taken.per_s, float(taken.num_unseen)
    for stat, samples in (("p50", values), ("p95", ())):
        figure = Figure(ROW, "eight runtimes", stat, percentile(values, stat), "ms", num, shape=shape, samples=samples)
        yield figure.aimed(TARGET_MS, ASPIRED_MS)
    yield Figure(ROW, "eight runtimes", "not seen by all", unseen, "rounds", num, shape=shape, target=0.0)
    yield Figure(ROW, "eight runtimes", "rate", rate, "rounds/s", num, shape=shape, target=TARGET_PER_S, higher=True)


async def pinged(url: str) -> list[float]:
    """Milliseconds of a round trip that does nothing: what no hop can be faster than."""
    taken = []
    async with connect.writer(url) as redis:
        for at in count():
            begun = time.perf_counter_ns()
            await redis.execute_command("PING")
            if at >= WARM:
                taken.append((time.perf_counter_ns() - begun) / 1e6)
            if len(taken) == NUM_PINGS:
                break
    return taken
