"""What a rank says of itself: heartbeats, votes and its last report."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from itertools import islice

import torch

from esper.kasmina.executor import Executor
from esper.leyline import contracts as pb
from esper.leyline.validate.bounds import NAME_BYTES, NUM_NUMBERS
from esper.session.options import WorkerIdentity
from esper.tolaria.boundary import Boundary
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.rows.plain import Value
from esper.tolaria.rows.rows import Rows
from esper.tolaria.state.digest import parameter_digest, strong_digest
from esper.tolaria.state.gradients import GradientSample
from esper.tolaria.state.sharded import parameters, parts, whole
from esper.tolaria.state.states import TrainingStates
from esper.tolaria.steering import Steering


@dataclass
class RankStatus:
    """Reads the training state and changes nothing. Positions (`step`, `epoch`) are those of the next step to begin."""

    identity: WorkerIdentity
    model: torch.nn.Module
    sites: list[str]
    data: str
    executor: Executor
    optimizers: Optimizers
    states: TrainingStates
    steering: Steering
    boundary: Boundary
    rows: Rows
    notes: dict[str, float] = field(default_factory=dict)
    steps_waited: int = 0
    examples: int = 0
    gradients: GradientSample = field(default_factory=GradientSample)
    settled: tuple[int, bytes] = (0, b"")
    """The newest round that took effect, and the digest of the parameters there, if none were compared in it."""

    def __post_init__(self) -> None:
        self._always = pb.Heartbeat(
            version=1,
            worker=self.identity.name,
            incarnation=self.rows.incarnation,
            rank=self.identity.rank,
            world_size=self.identity.world_size,
            region=self.identity.region,
            sites=self.sites,
            blueprints=[blueprint.manifest() for blueprint in self.executor.kernels.blueprints.values()],
        )

    def heartbeat(self, step: int, epoch: int, *, barrier_due: bool = False, busy: int = 0) -> pb.Heartbeat:
        """Position, seeds, newest loss and totals."""
        heartbeat = pb.Heartbeat(
            step=step,
            epoch=epoch,
            busy=pb.BusyWith.BUSY_PAUSED if self.boundary.paused_before else busy,  # type: ignore[arg-type]
            time_ns=time.time_ns(),
            seeds=self.seed_states(),
            loss=self.rows.last.get("loss", math.nan),
            packets=self.rows.made,
            shed=self.rows.shed,
            round_applied=self.boundary.round_applied,
            round_met=self.boundary.round_met,
            barrier_due=barrier_due,
            hyperparameters=self.optimizers.hyperparameters(),
            accuracy=self.notes.get("accuracy", math.nan),
            steps_waited=self.steps_waited,
            examples=self.examples,
        )
        heartbeat.MergeFrom(self._always)
        return heartbeat

    def vote(self, proposal: pb.BarrierProposal, step: int, epoch: int) -> pb.BarrierVote:
        """Everything that a verdict needs: seeds, snapshots, optimizers, and a digest of every parameter."""
        hold = self.boundary.hold()
        return pb.BarrierVote(
            version=1,
            round=proposal.round,
            roster_generation=proposal.roster_generation,
            worker=self.identity.name,
            step=step,
            epoch=epoch,
            held=hold.held,
            held_step=hold.step,
            parameter_digest=parameter_digest(self.weights()),
            seeds=self.seed_states(),
            snapshots=self.states.refs(),
            requests=self.executor.requests(),
            optimizers=self.optimizers.generations,
            own_host=self.optimizers.own_host,
            gradient_digest=self.gradients.digest,
            gradient_step=self.gradients.step,
            settled_round=self.settled[0],
            settled_digest=self.settled[1],
        )

    def sample(self, commit: pb.BarrierCommit, step: int) -> None:
        """Take evidence where a round took effect, before `step`, the same for all ranks: for the next vote."""
        self.gradients.ask(commit.round, step)
        is_due = self.identity.world_size > 1 and not commit.digests_compared
        self.settled = (commit.round, parameter_digest(self.weights())) if is_due else (0, b"")

    def values(self, loss: torch.Tensor | float | None, step_ms: float) -> dict[str, Value]:
        """What a step has measured."""
        values: dict[str, Value] = {"step_ms": step_ms, "lr": self.optimizers.learning_rate()}
        if loss is not None:
            values["loss"] = loss
        if "accuracy" in self.notes:
            values["accuracy"] = self.notes["accuracy"]
        return values

    def report(self, steps: int, epochs: int) -> pb.WorkerReport:
        """What is left to say at the end."""
        return pb.WorkerReport(
            worker=self.identity.name,
            steps=steps,
            epochs=epochs,
            parameter_digest=strong_digest(self.weights()),
            part_digest=strong_digest(own.items()) if (own := self.parts()) else b"",
            seeds=self.executor.reports(),
            packets=self.rows.made,
            shed=self.rows.shed,
            commands_applied=self.steering.num_applied,
            commands_failed=self.steering.num_failed,
            notes=self._first_notes(),
            steps_waited=self.steps_waited,
            data=self.data,
            seeds_forgotten=self.executor.num_forgotten,
        )

    def _first_notes(self) -> dict[str, float]:
        """Accuracy, and the others for which there is room: a report with more, or longer names, is refused whole."""
        known = {"accuracy": self.notes["accuracy"]} if "accuracy" in self.notes else {}
        fit = ((name, value) for name, value in (known | self.notes).items() if 0 < len(name.encode()) <= NAME_BYTES)
        return dict(islice(fit, NUM_NUMBERS))

    def seed_states(self) -> list[pb.SeedState]:
        """States of the seeds, with the rates that their optimizers will step at next."""
        states = self.executor.states()
        for state in states:
            if self.optimizers.has(state.seed_id):
                state.learning_rate = float(self.optimizers.learning_rate(state.seed_id))
                state.metrics.update(self.optimizers.left_out(state.seed_id))
        return states

    def parts(self) -> dict[str, torch.Tensor]:
        """By name, what this rank alone holds of the model."""
        return parts(parameters(self.model))

    def weights(self) -> list[tuple[str, torch.Tensor]]:
        """By name, what every rank holds whole of the model and has its shape, and the seeds beside it."""
        named: list[tuple[str, torch.Tensor]] = [*whole(parameters(self.model)).items()]
        for seed_id, seed in self.executor.seeds.items():
            named += [(f"seed:{seed_id}.{name}", parameter) for name, parameter in seed.trainable()]
        return named
