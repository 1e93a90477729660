"""What a reader of the pages has at hand when he types their commands: a live run called demo, and files."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

import pytest

from esper.bench.effort import EFFORTS
from esper.bench.history.store import Entry, Session, Store, default_folder
from esper.bench.load.results import Result
from esper.bench.load.tally import Tally
from esper.bench.machine import this_machine
from esper.bench.output.document import write
from esper.bus import connect, names, tail
from esper.bus.group.delivery import Delivery
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement, reject_spent
from esper.leyline import commands, contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from tests.bus_kit import put
from tests.figure_kit import document
from tests.scripted import ScriptedRun, cancelled, listed, seed_state

TRAIN = """
from torch import nn

def make():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
"""
NEVER_SETTLED = 6  # deliveries of one entry
LISTED = {
    "ID": ("esper dead list", re.compile(r"\b\d{13}-\d+\b")),
    "KEY_ID": ("esper keys list", re.compile(r"\b[0-9a-f]{8}\b")),
}
"""What a page calls an id that a reader takes from a list: the command that shows it, and what it looks like."""


@dataclass
class Ids:
    """The first id of the newest list of each kind, put where a page only has its name."""

    met: dict[str, str] = field(default_factory=dict)

    def look(self, command: str, output: str) -> None:
        """Keep the first one, where this was such a list and had one."""
        for name, (listing, form) in LISTED.items():
            if command.startswith(listing) and (found := form.search(output)):
                self.met[name] = found[0]

    def put(self, words: Sequence[str]) -> list[str]:
        """The words, as a reader would type them."""
        return [self.met.get(word, word) for word in words]


@asynccontextmanager
async def reading(
    short_directory: Path, redis_url: str, redis: connect.Redis, patch: pytest.MonkeyPatch
) -> AsyncIterator[ScriptedRun]:
    """A live run of two workers, which applies whatever is asked of it and says what its channels are worth."""
    with listed(short_directory, redis_url, redis, patch, "demo") as run:
        run.master.derive(run.run_id, [Role.OBSERVER]).save(run.keyring.with_name("observer.json"))
        run.master.derive(run.run_id, [Role.WORKER]).save(run.keyring.with_name("worker.json"))
        await lost(run)
        await run.beat(3, seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_BLENDING))
        serving = [asyncio.create_task(run.serve(stream=stream)) for stream in ("commands", "optimizer")]
        serving.append(asyncio.create_task(weighed(run)))
        try:
            yield run
        finally:
            for task in serving:
                await cancelled(task)


async def weighed(run: ScriptedRun) -> None:
    """Answer whoever asks what channels are worth, until cancelled."""
    opener = Opener(run.master.derive(run.run_id, [Role.COORDINATOR]), guard=None, accept=[Domain.COMMAND])
    async with aclosing(tail.follow(run.redis, names.key(run.run_id, "commands"), "0")) as entries:
        async for entry_id, sealed in entries:
            message = opener.open(sealed, entry_id, await connect.server_ms(run.redis)).message
            if isinstance(message, pb.AdaptationCommand) and message.HasField("structural_pruning"):
                await run.say("heartbeats", Role.WORKER, "worker-0", worth(message.structural_pruning.request_id))


def worth(request_id: str) -> pb.Heartbeat:
    """What rank 0 says of the channels of one layer."""
    ranks = [3.0, 1.0, 2.0, 4.0]
    layer = pb.ChannelImportance(
        parameter="head.weight",
        mask_type=pb.PruningMaskType.PRUNING_MASK_CHANNEL,
        gradient_norm=ranks,
        taylor=ranks,
        fisher=ranks,
    )
    told = pb.StructuralPruningRequest(
        request_id=request_id, phase=pb.PruningPhase.PRUNING_PHASE_ACTIVE, importance=[layer], num_parts=1
    )
    return pb.Heartbeat(version=1, worker="worker-0", world_size=2, time_ns=time.time_ns(), pruning=told)


async def lost(run: ScriptedRun) -> None:
    """A command that was handed over and never settled is set aside, and of a worker there is only a group."""
    sealer = Sealer(run.master.derive(run.run_id, [Role.CONTROLLER]), Role.CONTROLLER, "someone")
    stream = names.key(run.run_id, "commands")
    sealed = sealer.seal(commands.seed("s9", pb.SeedOperation.SEED_OP_CULL))
    [entry_id] = await put(run.redis, stream, sealed)
    for group, read_up_to in (("coordinator", "0"), ("worker-9", entry_id)):
        await run.redis.xgroup_create(stream, group, id=read_up_to)
    await run.redis.xreadgroup("coordinator", "c", {stream: ">"})
    settlement = Settlement()
    reject_spent(settlement, Delivery(stream, "coordinator", entry_id, sealed, NEVER_SETTLED, "c"))
    await Outbox(run.redis).settle(settlement)
    await run.redis.xdel(stream, entry_id)


def left(folder: Path) -> None:
    """A script, a token, and what runs of the benchmarks have written."""
    (folder / "train.py").write_text(TRAIN)
    (folder / "token").write_text(token_hex())
    (folder / "token").chmod(0o600)
    for name in ("bench/out", "one", "other"):
        (folder / name).mkdir(parents=True)
        write(document(), folder / name / "report.json")
    for name in ("one", "two"):
        tally = Tally("command")
        tally.note("applied", 0.002)
        Result("demo", 10.0, 2.0, tally).write(folder / f"{name}.json")
    entry = Entry("kd-loss", "", "StaticKDLoss", "p50", 0.1, "ms", 0.1)
    Store(default_folder()).add(this_machine().key, Session(1.0, "", False, EFFORTS["quick"].mode, 0.5, (entry,)))
