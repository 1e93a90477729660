"""A process that resumes carries out again what was decided since its checkpoint, and nothing twice."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from dataclasses import dataclass

import pytest

from esper.bus import connect
from esper.bus.names import new_run_id
from esper.bus.upkeep.floors import kept_key
from esper.tolaria.checkpoints.manifest import Manifest
from tests.seed_kit import Op
from tests.session_kit import on_seed, own_optimizer
from tests.system.processes import Start
from tests.system.resumed_kit import Rank, Seen, host_rate, num_heartbeats, start
from tests.system.scripted import Script, receipts
from tests.system.two_ranks_kit import decide

BEFORE, AFTER, KILLED, END = 3, 13, 16, 18  # checkpoints are made before steps 9 and 17
NUM_COMMANDS = 5


def steer(script: Script, rank: Rank) -> list[str]:
    """A seed before the checkpoint, its grafting after it."""
    rank.until(lambda: num_heartbeats(script) > 0)
    train = [on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"), on_seed(Op.SEED_OP_START_TRAINING)]
    first = decide(script, 1, BEFORE, train[0], own_optimizer("s0", 0.02), train[1])
    decide(script, 2, AFTER, host_rate(), on_seed(Op.SEED_OP_GERMINATE, "s1", site="head", blueprint_id="lora"))
    return first


async def needed_from(script: Script) -> dict[str, str]:
    """Where the worker says that the logs are needed from."""
    async with connect.writer(script.redis_url) as redis:
        told: bytes | None = await redis.execute_command("HGET", kept_key(script.run_id), "worker-0")
    return dict(json.loads(told or b"{}"))


def lose_history(script: Script) -> None:
    """As FLUSHALL does, but for the runs of other tests."""

    async def delete() -> None:
        async with connect.writer(script.redis_url) as redis:
            keys = [key async for key in redis.scan_iter(match=f"esper:{{{script.run_id}*", count=1_000)]
            await redis.delete(*keys)

    asyncio.run(delete())


@dataclass(frozen=True)
class Lived:
    """A run that was killed after its checkpoint, resumed, and resumed once more after its history was lost."""

    entries: list[str]  # of the commands that were decided before the checkpoint
    kept: Manifest
    needed: dict[str, str]
    decisions: list[str]
    first: Seen
    again: Seen
    told: Counter[str]  # receipts by command
    copied: str  # the entry in which the first command came again
    errors: str  # of whoever met that


@pytest.fixture(scope="module")
def lived(redis_url: str, tmp_path_factory: pytest.TempPathFactory, ranks: Start) -> Lived:
    folder = tmp_path_factory.mktemp("resumed")
    script = Script(redis_url, new_run_id("resumed"), folder)
    rank = start(ranks, script, folder / "run", 2, KILLED, "begin")
    entries = steer(script, rank)
    first = rank.said(lambda: len(receipts(script)) >= NUM_COMMANDS)
    [kept] = [Manifest.from_bytes(path.read_bytes()) for path in folder.rglob("manifest.json")]
    shutil.copytree(folder / "run", folder / "copy")
    needed = asyncio.run(needed_from(script))

    again = start(ranks, script, folder / "run", 0, END, "resume").said()
    decisions = [opened.entry_id for opened in script.read("decisions")]
    told = Counter(each.command_id for each in receipts(script))

    lose_history(script)
    rank = start(ranks, script, folder / "copy", 1, END, "resume")
    rank.until(lambda: num_heartbeats(script) > 0)
    copied = script.copy("commands", entries[0])
    script.commit(1, 14, ("commands", copied))
    return Lived(entries, kept, needed, decisions, first, again, told, copied, rank.ended())


def test_what_was_applied_after_the_checkpoint_is_applied_again_at_its_step(lived: Lived) -> None:
    first, again, kept = lived.first, lived.again, lived.kept
    positions = {"commands": lived.entries[2], "optimizer": lived.entries[1], "decisions": lived.decisions[0]}
    assert kept.log.positions == positions == lived.needed
    assert list(again) == [str(step) for step in range(kept.place.step, END + 1)]
    assert [again[str(step)] for step in range(9, KILLED + 1)] == [first[str(step)] for step in range(9, KILLED + 1)]
    assert [set(again[str(step)][1]) for step in (AFTER - 1, AFTER)] == [{"s0"}, {"s0", "s1"}]
    assert sorted(lived.told.values()) == [1] * NUM_COMMANDS


def test_after_a_loss_of_history_what_the_checkpoint_had_met_is_refused(lived: Lived) -> None:
    assert f"round 1 names entry {lived.copied} of :commands, refused here" in lived.errors
    assert f"was met as entry {lived.entries[0]} and again as {lived.copied}" in lived.errors
