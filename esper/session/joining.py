"""Puts together what joins a model and its training loop to a run, on one rank."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout

from esper.errors import TrainingError
from esper.kasmina.blend import seed_clip
from esper.kasmina.breaker import PersistentParts
from esper.kasmina.executor import Executor
from esper.kasmina.gates.evidence import Sources
from esper.kasmina.pruning.pruner import Pruning
from esper.kasmina.slots.naming import bare_name, distribution, undistributed
from esper.kasmina.slots.outputs import tensors_in
from esper.kernels.blueprints import Blueprint
from esper.runtime.beside.link import Link
from esper.session.batches import LoopPosition
from esper.session.breakers import tell_filling, tell_opened
from esper.session.checkpointing import Part, open_checkpoints
from esper.session.exchange import Exchange
from esper.session.heldout import held_out
from esper.session.loop_state import LoopState
from esper.session.options import SessionOptions, WorkerIdentity
from esper.session.rank_status import RankStatus
from esper.session.replay_link import ReplayLink
from esper.session.rulings import steering_of
from esper.session.same_code import require_same_code
from esper.session.session import Session
from esper.session.sharding_check import require_equal_holdouts
from esper.session.teacher_registration import TeacherRegistrations
from esper.session.teaching import open_teachers, with_teachers
from esper.session.weight_divergence import mend_parted
from esper.tolaria.boundary import Boundary
from esper.tolaria.checkpoints.optimizers import OptimizerState
from esper.tolaria.checkpoints.rank import RankState, Stateful
from esper.tolaria.fossils import FossilGradients
from esper.tolaria.missing_ranks import absent
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.optimizers.sparse import sparse_in
from esper.tolaria.optimizers.surroundings import Surroundings
from esper.tolaria.reduce import SeedReducer
from esper.tolaria.rows.rows import Rows
from esper.tolaria.state.sharded import parameters
from esper.tolaria.state.snapshot import Snapshots
from esper.tolaria.state.states import TrainingStates

COLLECTIVE_TIMEOUT = timedelta(seconds=60)  # of our own process group; a rank that is gone is named then

Batches = Sequence[tuple[Any, Any]]
Loss = Callable[[Any, Any], torch.Tensor]
Call = Callable[[torch.nn.Module, Any], Any]
HeldOut = tuple[Batches, Loss] | tuple[Batches, Loss, Call]


@dataclass(frozen=True)
class Joining:
    """A model and its loop, as they are before they join. Knows no process: the link to the runtime is given."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    sites: Sequence[str]
    holdout: HeldOut | None
    chosen: SessionOptions
    identity: WorkerIdentity
    run_id: str

    def session(self, link: Link | ReplayLink | None, blueprints: Mapping[str, Blueprint]) -> Session:
        """Joined, and on record as begun; resumed from a checkpoint where that was chosen and there is one.

        Where it fails model and optimizer are left to themselves.
        """
        group = _own_group(self.chosen.patience_s()) if self.identity.world_size > 1 else None
        reducer = SeedReducer(group)
        with ExitStack() as undo:
            executor = self._executor(reducer, blueprints)
            undo.callback(executor.detach)
            session = self._joined(link, executor, reducer)
            undo.pop_all()
            undo.callback(session.abandon)
            checkpoints = open_checkpoints(self.chosen, self.identity, self.run_id, self._state(session), reducer)
            resumed = session.keep(checkpoints, resume=self.chosen.resume)
            if resumed and group is not None:
                mend_parted(session.status, group)
            session.begin(resumed=resumed)
            undo.pop_all()
        return session

    def _joined(self, link: Link | ReplayLink | None, executor: Executor, reducer: SeedReducer) -> Session:
        boundary, rows = Boundary(is_in_group=self.identity.world_size > 1), Rows(incarnation=secrets.randbits(63))
        executor.on_breaker(partial(tell_opened, rows))
        executor.on_filling(partial(tell_filling, rows))
        breaker = executor.breakers["teacher"]
        teachers = open_teachers(self.chosen.teachers, self.model, self.optimizer, rows, reducer.mean, breaker)
        around = with_teachers(self._around(executor), teachers)
        optimizers = Optimizers(self.optimizer, reduce=reducer, scaler=self.chosen.scaler, around=around)
        executor.follow_optimizers(optimizers.has)
        mean = reducer.mean if reducer.world_size > 1 else None
        host, ddp = undistributed(self.model), distribution(self.model)
        fossils, pruning = FossilGradients(mean, host, tensors_in, ddp), self._pruning(reducer)
        states = TrainingStates(Snapshots(self.model, optimizers), executor, fossils, pruning)
        steer = steering_of(link, executor)
        steering = steer(self.identity.name, executor, optimizers, states, fossils, time.time_ns, pruning)
        status = RankStatus(
            self.identity,
            self.model,
            executor.sites,
            self.chosen.data,
            executor,
            optimizers,
            states,
            steering,
            boundary,
            rows,
        )
        exchange = Exchange(link, boundary, rows)
        session = Session(status, exchange, self.optimizer, self.run_id, pruning, self.chosen.steps_per_epoch)
        recorded = dict(link.plan.verdicts) if isinstance(link, ReplayLink) else {}
        session.registrations = TeacherRegistrations(teachers, steering.count, recorded)
        self._place_loop(session, link)
        return session

    def _executor(self, reducer: SeedReducer, blueprints: Mapping[str, Blueprint]) -> Executor:
        holdout = held_out(self.holdout, self.chosen.settings.min_examples)
        require_equal_holdouts(self.model, holdout, reducer)
        return Executor(
            self.model,
            self.sites,
            run_id=self.run_id,
            settings=self.chosen.settings,
            blueprints=blueprints,
            sources=Sources(reducer.mean if reducer.world_size > 1 else None, holdout),
        )

    def _around(self, executor: Executor) -> Surroundings:
        """What an optimizer of a seed meets in the loop."""
        return Surroundings(
            model=lambda: ((bare_name(name), parameter) for name, parameter in parameters(self.model).items()),
            sparse=lambda: ((bare_name(name), parameter) for name, parameter in sparse_in(self.model)),
            clips=partial(seed_clips, executor) if self.chosen.settings.gradient_clip_adaptive else dict,
            schedulers=self.chosen.schedulers(),
            own_host=self.chosen.own_host,
        )

    def _pruning(self, reducer: SeedReducer) -> Pruning:
        is_enabled = self.chosen.settings.checkpoint_pruning_enabled
        return Pruning(self.model, self.chosen.pruning, enabled=is_enabled, reduce=reducer.mean)

    def _place_loop(self, session: Session, link: Link | ReplayLink | None) -> None:
        """Where in its data the loop stands, and where a replay ends."""
        loop = LoopState(self.chosen.schedulers(), self.chosen.scaler)
        session.position = LoopPosition(self.chosen.loader, lambda: session.step_number, loop)
        if self.chosen.loader is not None:
            session.not_replayable = ""
        if isinstance(link, ReplayLink):
            session.ends_after, link.next_step = link.plan.last_step, lambda: session.step_number

    def _state(self, session: Session) -> RankState:
        """All that a checkpoint holds of this rank."""
        host = undistributed(self.model)
        named = OptimizerState(session.optimizers, self.optimizer, partial(parameters, host))
        parts: dict[str, Stateful] = {"pruning": Part.of(session.pruning)}
        if session.teachers is not None:
            parts["teacher"] = session.teachers
        phase = Part(session.pruning.standing, session.pruning.load_standing)
        lasting = PersistentParts({**session.executor.breakers, "pruning": phase})
        fossils = session.status.steering.fossils
        return RankState(host, named, session.executor.durable(), fossils, session.position, parts, lasting)


def seed_clips(executor: Executor) -> dict[str, float]:
    """Gradient norms that the seeds which blend are clipped to at this step, by their alphas."""
    seeds = executor.learning()
    return {name: seed_clip(seed.schedule.at(executor.step)) for name, seed in seeds.items() if seed.blends}


def _own_group(ready_s: float) -> dist.ProcessGroup:
    """Ours, so that no collective of the user's is crossed; evidence lies on the CPU also where gradients don't.

    Ranks come as their runtimes are ready, which may take each `ready_s`: only then do they wait as in a collective.
    """
    patience = timedelta(seconds=ready_s) + COLLECTIVE_TIMEOUT
    backend = "cpu:gloo,cuda:nccl" if dist.get_backend() == "nccl" else dist.get_backend()
    try:
        group: dist.ProcessGroup = dist.new_group(backend=backend, timeout=patience)
    except RuntimeError as error:
        everyone = dist.group.WORLD
        assert everyone is not None  # of which this is a rank
        raise TrainingError(
            f"rank {everyone.rank()} could not meet {absent(everyone, 'attach')} in attach(); every rank of a process "
            f"group calls it, within {patience.total_seconds():g} s: {error}"
        ) from error
    _set_pg_timeout(COLLECTIVE_TIMEOUT, group)
    require_same_code(group)
    return group
