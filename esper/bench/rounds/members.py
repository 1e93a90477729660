"""Workers that train nothing: the real runtime beside a trainer that stands at a boundary all the time."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import socket
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from esper.bench.rounds.lines import given, run, say, told
from esper.leyline import contracts as pb
from esper.leyline.frames import FrameDecoder, encode
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.runtime.access import Access
from esper.runtime.beside.assembly import assembled
from esper.runtime.beside.lanes import Lanes
from esper.runtime.beside.namesake import Newcomer
from esper.runtime.beside.packets import Origin
from esper.runtime.ending import meanwhile
from esper.tolaria.boundary import Boundary

BEAT_S = 0.5
DIGEST = b"d" * 32
SITES = [f"blocks.{number}.mlp" for number in range(48)]
"""Where seeds could be, as each heartbeat of a trainer says: of a model of this many blocks."""


@dataclass
class Trainer:
    """Votes as soon as it is asked, and stands before the step of the newest commit."""

    name: str
    rank: int
    world_size: int
    lane: socket.socket
    boundary: Boundary = field(default_factory=Boundary)
    step: int = 1
    seen_ns: dict[int, int] = field(default_factory=dict)
    _decoder: FrameDecoder[pb.ToTrainer] = field(default_factory=lambda: FrameDecoder(pb.ToTrainer))

    async def beat(self) -> None:
        """Heartbeats, without end: the first at once, the others at moments of this rank's own.

        Members that share a process are held up together, and would all beat in one round of twenty from then on.
        """
        loop = asyncio.get_running_loop()
        due_s = loop.time() - BEAT_S * (1 - self.rank / self.world_size)
        while True:
            beat = pb.Heartbeat(
                version=1,
                worker=self.name,
                incarnation=1,
                rank=self.rank,
                world_size=self.world_size,
                step=self.step,
                round_applied=self.boundary.round_applied,
                sites=SITES,
            )
            self._say(pb.ToRuntime(heartbeat=beat))
            due_s = next_beat_s(due_s, loop.time())
            await asyncio.sleep(due_s - loop.time())

    def hear(self) -> None:
        """What has come on the lane."""
        for message in self._decoder.feed(self.lane.recv(1 << 16)):
            match message.WhichOneof("message"):
                case "proposal":
                    self.boundary.on_proposal(message.proposal)
                case "commit":
                    self.seen_ns[message.commit.commit.round] = time.monotonic_ns()
                    self.boundary.on_commit(message.commit)
                    self.step = message.commit.commit.effective_step
                    if (order := self.boundary.due(self.step)) is not None:
                        self._say(pb.ToRuntime(applied=self.boundary.applied(order, [])))
                case "abort":
                    self.boundary.on_abort(message.abort)
        if (proposal := self.boundary.vote_asked()) is not None:
            vote = pb.BarrierVote(
                version=1,
                round=proposal.round,
                roster_generation=proposal.roster_generation,
                worker=self.name,
                step=self.step,
                parameter_digest=DIGEST,
            )
            self.boundary.voted(vote)
            self._say(pb.ToRuntime(vote=vote))

    def _say(self, message: pb.ToRuntime) -> None:
        self.lane.sendall(encode(message))


async def member(stack: AsyncExitStack, access: Access, rank: int, world_size: int) -> Trainer:
    """A trainer and the runtime beside it, at work until the stack is closed."""
    name = f"worker-{rank}"
    control, control_peer = socket.socketpair()
    rows, rows_peer = socket.socketpair()
    for end in (control, control_peer, rows, rows_peer):
        end.setblocking(False)
    lanes = await Lanes.adopt(control_peer.detach(), rows_peer.detach())
    newcomer = Newcomer(name, world_size)
    beside = await stack.enter_async_context(assembled(access, Origin(name, "r0"), lanes, newcomer=newcomer))
    trainer = Trainer(name, rank, world_size, control)
    asyncio.get_running_loop().add_reader(control.fileno(), trainer.hear)
    stack.enter_context(rows)
    await stack.enter_async_context(meanwhile(beside.serve(asyncio.Event()), trainer.beat()))
    return trainer


def next_beat_s(due_s: float, now_s: float) -> float:
    """The next moment of those that are whole beats apart; those that were missed are left out."""
    return due_s + BEAT_S * max(1, math.ceil((now_s - due_s) / BEAT_S))


def collect_as_alone(num: int) -> None:
    """Collect garbage as often as so many processes of one member would, of which none has the others' to walk.

    Else 32 members that work at the same moment have the collector walk all of them, and 3 rounds in a hundred wait.
    """
    gc.freeze()
    young, *older = gc.get_threshold()
    gc.set_threshold(young * num, *older)


async def main(url: str, run_id: str, keyring: str, ranks: Sequence[int], world_size: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    access = Access(run_id, url, RoleKeyring.load(Path(keyring)), Path(keyring))
    async with AsyncExitStack() as stack:
        trainers = [await member(stack, access, rank, world_size) for rank in ranks]
        collect_as_alone(len(ranks))
        say("ready")
        async for _ in told():
            say([list(trainer.seen_ns.items()) for trainer in trainers])
            for trainer in trainers:
                trainer.seen_ns.clear()


if __name__ == "__main__":
    arguments = given()
    del arguments["name"]
    run(main(**arguments))
