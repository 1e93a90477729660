"""Two sessions that prune by the same orders, whose gradients are averaged."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from secrets import token_bytes

import torch
from torch import Tensor

from esper.kasmina.executor import Executor
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.pruner import Pruning
from esper.leyline import contracts as pb
from esper.leyline.validate.commands import adaptation_command
from esper.leyline.validate.messages import validate
from esper.session import Session
from esper.session.exchange import Exchange
from esper.session.options import WorkerIdentity
from esper.session.rank_status import RankStatus
from esper.tamiyo.judge import Judge
from esper.tamiyo.world import Catalogue, World
from esper.tolaria.boundary import Boundary
from esper.tolaria.fossils import FossilGradients
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.reduce import SeedReducer
from esper.tolaria.rows.rows import Rows
from esper.tolaria.state.snapshot import Snapshots
from esper.tolaria.state.states import TrainingStates
from esper.tolaria.steering import Steering
from tests.rounds import waiting
from tests.seed_kit import Host, batch, loss_of, new_host

UNMEASURED = KasminaCheckpointPruningConfig(importance_every=0)


@dataclass
class Said(Exchange):
    """Keeps what its trainer says."""

    messages: list[pb.ToRuntime] = field(default_factory=list)

    def say(self, message: pb.ToRuntime) -> None:
        self.messages.append(message)


class Ranks:
    """Two sessions whose gradients are averaged, and the judge of their rounds."""

    def __init__(self, pruning: KasminaCheckpointPruningConfig = UNMEASURED) -> None:
        self.hosts = [new_host(), new_host()]
        self.runs = [self.join(host, f"worker-{rank}", pruning) for rank, host in enumerate(self.hosts)]
        self.receipts: list[list[pb.CommandReceipt]] = []

    def join(self, host: Host, name: str, pruning: KasminaCheckpointPruningConfig = UNMEASURED) -> Session:
        """What attach() makes, without the runtime beside it."""
        optimizer = torch.optim.SGD(host.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)
        reducer = SeedReducer()
        executor, optimizers = Executor(host, ["body"], run_id="r"), Optimizers(optimizer, reduce=reducer)
        fossils, pruner = FossilGradients(reducer.mean), Pruning(host, pruning, reduce=reducer.mean)
        states = TrainingStates(Snapshots(host, optimizers), executor, fossils, pruner)
        steering = Steering(name, executor, optimizers, states, fossils, time.time_ns, pruner)
        boundary, rows, identity = Boundary(), Rows(incarnation=1), WorkerIdentity(name, "r0", int(name[-1]), 2)
        status = RankStatus(identity, host, ["body"], "", executor, optimizers, states, steering, boundary, rows)
        return Session(status, Said(None, boundary, rows), optimizer, "r", pruner)

    def decide(self, *asked: pb.AdaptationCommand) -> list[list[pb.CommandReceipt]]:
        """Vote, judge, and carry out before the next step of both ranks: their receipts, by rank."""
        number = self.runs[0].exchange.boundary.round_applied + 1
        proposal = pb.BarrierProposal(version=1, round=number, roster=["worker-0", "worker-1"])
        votes = [run.status.vote(proposal, run.step_number, run.epoch) for run in self.runs]
        step = votes[0].step
        judge = Judge(World.of(votes), Catalogue(), step, 0, 0)
        opened = []
        for command in asked:
            adaptation_command(command)
            ref = judge.accept(waiting(command))
            ref.envelope_digest = token_bytes(32)
            opened.append(pb.OpenedCommand(ref=ref, adaptation=command))
        commit = pb.BarrierCommit(version=1, round=number, effective_step=step, commands=[each.ref for each in opened])
        for run in self.runs:
            run.exchange.boundary.on_commit(pb.CommitOrder(commit=commit, commands=opened))
        self.train(1)
        return [[*run.exchange.boundary._applied[number].receipts] for run in self.runs]

    def train(self, num_steps: int, factor: float = 1.0) -> None:
        for _ in range(num_steps):
            with self.runs[0].step() as first, self.runs[1].step() as second:
                for rank, (host, step) in enumerate(zip(self.hosts, (first, second), strict=True)):
                    inputs, classes = batch(10 * self.runs[0].step_number + rank)
                    loss = loss_of(host(inputs), classes).mean() * factor
                    torch.autograd.backward(loss)
                    step.loss(loss)
                for pair in zip(*(host.parameters() for host in self.hosts), strict=True):
                    mean = (pair[0].grad + pair[1].grad) / 2
                    pair[0].grad, pair[1].grad = mean, mean.clone()
                for run in self.runs:
                    run.optimizer.step()
                    run.optimizer.zero_grad()

    def weights(self) -> list[list[Tensor]]:
        return [[p.detach().clone() for p in host.parameters()] for host in self.hosts]

    def heard(self) -> list[pb.StructuralPruningRequest]:
        """Importance that rank 0 told."""
        said = self.runs[0].exchange
        assert isinstance(said, Said)
        beats = [message.heartbeat for message in said.messages if message.heartbeat.HasField("pruning")]
        for beat in beats:
            validate(beat)
        return [beat.pruning for beat in beats]
