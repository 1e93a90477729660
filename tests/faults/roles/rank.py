"""A rank that trains nothing: its runtime, and steps of a few milliseconds that keep to what was promised and decided.

It writes down each step that it begins, each vote and each decision, for the checker; and dies at the point it is told.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from dataclasses import dataclass, field

from esper.leyline import contracts as pb
from esper.leyline.frames import FrameDecoder, encode
from esper.leyline.kinds import Role
from esper.runtime import process
from esper.runtime.access import Access
from esper.runtime.beside.assembly import assembled
from esper.runtime.beside.lanes import Lanes
from esper.runtime.beside.namesake import Newcomer
from esper.runtime.beside.packets import Origin
from esper.runtime.ending import meanwhile
from esper.runtime.timekeeping import kept_right
from esper.tolaria.boundary import Boundary
from tests.faults.history import History
from tests.faults.roles import arguments

BEAT_S = 0.25
POINTS = ("before_vote", "after_vote", "before_applied", "after_applied")


@dataclass(frozen=True, slots=True)
class Told(arguments.Told):
    """Its place in the group, its pace, and the point at which it dies."""

    rank: int
    world_size: int
    step: int  # to begin with
    step_s: float
    epoch_steps: int  # after so many steps a barrier is due
    point: str = ""
    after: int = 0


@dataclass
class Trainer:
    """One boundary, and time that goes by in steps."""

    told: Told
    lane: socket.socket
    history: History
    boundary: Boundary = field(default_factory=Boundary)
    incarnation: int = field(default_factory=lambda: secrets.randbits(63))
    _decoder: FrameDecoder[pb.ToTrainer] = field(default_factory=lambda: FrameDecoder(pb.ToTrainer))
    _left: int = 0

    def __post_init__(self) -> None:
        self.step, self.epoch, self._left = self.told.step, 0, self.told.after

    async def train(self) -> None:
        """Steps, without end."""
        loop = asyncio.get_running_loop()
        beat_at = loop.time()
        while True:
            due = self.step % self.told.epoch_steps == 0
            if self._may_begin():
                self._note("began", step=self.step)
                self.step += 1
            if due or loop.time() >= beat_at:
                beat_at = loop.time() + BEAT_S
                self._beat(due=due)
            await asyncio.sleep(self.told.step_s)

    def hear(self) -> None:
        """What has come on the lane."""
        for message in self._decoder.feed(self.lane.recv(1 << 16)):
            match message.WhichOneof("message"):
                case "proposal":
                    if (vote := self.boundary.on_proposal(message.proposal)) is not None:
                        self._say(pb.ToRuntime(vote=vote))
                case "commit":
                    self._heard_commit(message.commit)
                case "abort":
                    self._note("aborted", round=message.abort.round, generation=message.abort.roster_generation)
                    self.boundary.on_abort(message.abort)

    def _heard_commit(self, order: pb.CommitOrder) -> None:
        commit = order.commit
        self._note(
            "committed",
            round=commit.round,
            generation=commit.roster_generation,
            step=commit.effective_step,
            position=[commit.commands_position, commit.optimizer_position],
            commands=[ref.command_id for ref in commit.commands],
        )
        if (answer := self.boundary.on_commit(order)) is not None:
            self._say(pb.ToRuntime(applied=answer))

    def _may_begin(self) -> bool:
        while (order := self.boundary.due(self.step)) is not None:
            self._passes("before_applied")
            self._note(
                "applied",
                round=order.commit.round,
                generation=order.commit.roster_generation,
                step=self.step,
                commands=[opened.ref.command_id for opened in order.commands],
            )
            receipts = [self._receipt(opened.ref, order.commit.round) for opened in order.commands]
            self._say(pb.ToRuntime(applied=self.boundary.applied(order, receipts)))
            self._passes("after_applied")
        if (proposal := self.boundary.vote_asked()) is not None:
            self._passes("before_vote")
            vote = pb.BarrierVote(
                version=1,
                round=proposal.round,
                roster_generation=proposal.roster_generation,
                worker=self.told.name,
                step=self.step,
                parameter_digest=self.step.to_bytes(32),
                optimizers={"host": 1},
            )
            self.boundary.voted(vote)
            self._note("voted", round=vote.round, generation=vote.roster_generation, step=self.step)
            self._say(pb.ToRuntime(vote=vote))
            self._passes("after_vote")
        return not self.boundary.must_wait(self.step)

    def _receipt(self, ref: pb.CommittedCommand, number: int) -> pb.CommandReceipt:
        return pb.CommandReceipt(
            version=1,
            command_id=ref.command_id,
            entry_id=ref.entry_id,
            status=pb.ReceiptStatus.RECEIPT_APPLIED,
            worker=self.told.name,
            step=self.step,
            round=number,
        )

    def _beat(self, *, due: bool) -> None:
        beat = pb.Heartbeat(
            version=1,
            worker=self.told.name,
            incarnation=self.incarnation,
            rank=self.told.rank,
            world_size=self.told.world_size,
            step=self.step,
            round_applied=self.boundary.round_applied,
            barrier_due=due,
        )
        self._say(pb.ToRuntime(heartbeat=beat))

    def _passes(self, point: str) -> None:
        if point == self.told.point:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def _note(self, what: str, **facts: object) -> None:
        self.history.note(what, worker=self.told.name, incarnation=self.incarnation, **facts)

    def _say(self, message: pb.ToRuntime) -> None:
        self.lane.sendall(encode(message))


async def main(stopping: asyncio.Event) -> None:
    told = Told.begin("runtime")
    (control, control_peer), (rows, rows_peer) = socket.socketpair(), socket.socketpair()
    for end in (control, control_peer, rows_peer):
        end.setblocking(False)
    with told.history() as history, rows:
        lanes = await Lanes.adopt(control_peer.detach(), rows_peer.detach())
        origin, newcomer = Origin(told.name, "r0"), Newcomer(told.name, told.world_size)
        access = Access(told.run, told.url, told.keys(Role.WORKER), told.keyring(Role.WORKER))
        async with assembled(access, origin, lanes, newcomer=newcomer) as beside:
            trainer = Trainer(told, control, history)
            asyncio.get_running_loop().add_reader(control.fileno(), trainer.hear)
            async with kept_right(beside.clock, beside.outbox.redis), meanwhile(trainer.train()):
                await beside.serve(stopping)


if __name__ == "__main__":
    process.run(main)
