"""attach(): a model and its training loop joined to a run."""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from esper.errors import RuntimeLostError, SettingError
from esper.kasmina.blend import seed_clip
from esper.kasmina.executor import Executor
from esper.kasmina.naming import bare_name, modules_at, undistributed
from esper.kasmina.paired import Holdout
from esper.kasmina.pruning.pruner import Pruning
from esper.kernels.installed import installed_blueprints
from esper.runtime.link import Link, await_ready
from esper.session.batches import LoopPosition
from esper.session.breakers import tell_opened
from esper.session.checkpointing import Part, open_checkpoints
from esper.session.exchange import Exchange
from esper.session.lessons import Lessons
from esper.session.options import Place, SessionOptions
from esper.session.portrait import Portrait
from esper.session.replay_link import ReplayLink, ReplayPlace
from esper.session.rulings import steered
from esper.session.session import Session
from esper.session.teaching import open_teachers, with_teachers
from esper.session.whole import require_whole
from esper.tolaria.boundary import Boundary
from esper.tolaria.checkpoints.optimizers import OptimizerState
from esper.tolaria.checkpoints.rank import RankState, Stateful
from esper.tolaria.fossils import FossilGradients
from esper.tolaria.optimizers import Optimizers
from esper.tolaria.reduce import SeedReducer
from esper.tolaria.rows import Rows
from esper.tolaria.snapshot import Snapshots
from esper.tolaria.states import TrainingStates
from esper.tolaria.surroundings import Surroundings

log = structlog.get_logger()

READY_TIMEOUT_S = 30.0  # a slow machine starts many processes at once
COLLECTIVE_TIMEOUT = timedelta(seconds=60)  # of our own process group; a rank that is gone is named then

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def attach(
    model: torch.nn.Module,
    *,
    optimizer: torch.optim.Optimizer,
    sites: Sequence[str],
    run: str = "",
    holdout: tuple[Batches, Loss] | None = None,
    **options: Any,
) -> Session:
    """Join a model and its loop to a run; call once on every rank, after the model is built (and wrapped).

    `sites` name submodules whose output a seed may join. `holdout` is (batches, loss_fn): held-out (inputs, targets)
    and a function (outputs, targets) -> loss per example, shape [n]; without it the gates that measure loss fail.
    `options` are the fields of SessionOptions. Without `run` the environment's ESPER_RUN is meant. Raises SettingError
    for a site or an option that does not exist, a model split by FSDP or a broken blueprint, RuntimeLostError where the
    runtime is not ready within 30 s; with `required=False` it trains unsteered then, and at once where no run is named.
    """
    chosen, blueprints = SessionOptions.of(options), installed_blueprints()
    modules_at(undistributed(model), sites)  # raises before a process is started for nothing
    require_whole(model)
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    place, optimizer = Place.of(chosen, rank, world_size), bare(optimizer)
    with ExitStack() as undo:
        link, run_id, chosen = _linked(place, run, chosen)
        if link is not None:
            undo.callback(link.close)  # unless all of what follows is in order
        boundary, rows = Boundary(), Rows(incarnation=secrets.randbits(63))
        reducer = SeedReducer(_own_group() if world_size > 1 else None)
        executor = Executor(
            model,
            sites,
            run_id=run_id,
            settings=chosen.settings,
            reduce=reducer.mean,
            holdout=Holdout(tuple(holdout[0]), holdout[1]) if holdout else None,
            blueprints=blueprints,
        )
        executor.on_breaker(partial(tell_opened, rows))
        around = Surroundings(
            model=lambda: ((bare_name(name), parameter) for name, parameter in model.named_parameters()),
            clips=partial(seed_clips, executor) if chosen.settings.gradient_clip_adaptive else dict,
            schedulers=chosen.schedulers(),
            own_host=chosen.own_host,
        )
        teachers = open_teachers(chosen.teachers, model, optimizer, rows, reducer.mean, executor.breakers["teacher"])
        around = with_teachers(around, teachers)
        optimizers = Optimizers(optimizer, reduce=reducer, scaler=chosen.scaler, around=around)
        executor.follow_optimizers(optimizers.has)
        fossils = FossilGradients(reducer.mean)
        pruning = Pruning(
            model, chosen.pruning, enabled=chosen.settings.checkpoint_pruning_enabled, reduce=reducer.mean
        )
        states = TrainingStates(Snapshots(model, optimizers), executor, fossils, pruning)
        requested, steer = steered(link, place.name, executor)
        steering = steer(place.name, requested, optimizers, states, fossils, time.time_ns, pruning)
        portrait = Portrait(
            place, model, executor.sites, chosen.data, executor, optimizers, states, steering, boundary, rows
        )
        session = Session(portrait, Exchange(link, boundary, rows), optimizer, run_id, pruning, chosen.steps_per_epoch)
        recorded = dict(link.plan.verdicts) if isinstance(link, ReplayLink) else {}
        session.lessons = Lessons(teachers, steering.count, recorded)
        session.requested = requested
        session.position = LoopPosition(chosen.loader)
        if chosen.loader is not None:
            session.not_replayable = ""
        if isinstance(link, ReplayLink):
            session.ends_after, link.next_step = link.plan.last_step, lambda: session.step_number
        host = model.module if isinstance(model, DistributedDataParallel) else model
        named = OptimizerState(optimizers, optimizer, lambda: dict(host.named_parameters()))
        parts: dict[str, Stateful] = {"pruning": Part.of(pruning)} | ({"teacher": teachers} if teachers else {})
        state = RankState(host, named, executor.durable(), fossils, session.position, parts)
        resumed = session.keep(open_checkpoints(chosen, place, run_id, state, reducer), resume=chosen.resume)
        session.begin(resumed=resumed)
        undo.pop_all()
    return session


def bare(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """What is below the wrappers of accelerate and Lightning: torch runs the hooks of this one."""
    inner = getattr(optimizer, "optimizer", None)
    return bare(inner) if isinstance(inner, torch.optim.Optimizer) else optimizer


def seed_clips(executor: Executor) -> dict[str, float]:
    """Gradient norms that the seeds which blend are clipped to at this step, by their alphas."""
    seeds = executor.learning()
    return {name: seed_clip(seed.schedule.at(executor.step)) for name, seed in seeds.items() if seed.blends}


def _own_group() -> dist.ProcessGroup:
    """Ours, so that no collective of the user's is crossed; evidence lies on the CPU also where gradients don't."""
    backend = "cpu:gloo,cuda:nccl" if dist.get_backend() == "nccl" else dist.get_backend()
    group: dist.ProcessGroup = dist.new_group(backend=backend, timeout=COLLECTIVE_TIMEOUT)
    return group


def _linked(place: Place, run: str, chosen: SessionOptions) -> tuple[Link | ReplayLink | None, str, SessionOptions]:
    """To a runtime; on a replay to its plan, with checkpoints of its own."""
    replay = ReplayPlace.of(os.environ)
    if replay is None:
        return *_start_runtime(place, run, chosen), chosen
    plan = replay.plan(place.rank)
    if plan.world_size != place.world_size:
        raise SettingError("number of ranks", place.world_size, f"{plan.world_size}, as in the run that is replayed")
    torch.set_num_threads(plan.num_threads)
    environment = {**chosen.environment, "ESPER_KEYRING": str(replay.keyring)}
    folder = None if chosen.checkpoints is None else replay.checkpoints
    chosen = dataclasses.replace(chosen, resume=False, checkpoints=folder, environment=environment)
    return ReplayLink(plan, replay.report_file(place.rank)), plan.run_id, chosen


def _start_runtime(place: Place, run: str, options: SessionOptions) -> tuple[Link | None, str]:
    environment = dict(os.environ) | {"ESPER_NAME": place.name, "ESPER_REGION": place.region}
    if run:
        environment["ESPER_RUN"] = run
    environment |= options.environment
    if not (options.required or environment.get("ESPER_RUN")):
        log.warning("training.unsteered", reason="no run is named, neither to attach() nor in ESPER_RUN")
        return None, "unsteered"
    link = Link(environment)
    link.start()
    try:
        return link, await_ready(link, READY_TIMEOUT_S)
    except RuntimeLostError as error:
        link.close()
        if options.required:
            raise
        log.warning("training.unsteered", reason=str(error))
        return None, environment.get("ESPER_RUN", "unsteered")
