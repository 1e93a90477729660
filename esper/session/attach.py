"""attach(): a model and its training loop joined to a run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Unpack

import structlog
import torch
import torch.distributed as dist

from esper.errors import RuntimeLostError, SettingError, listed
from esper.kasmina.slots.naming import modules_at, undistributed
from esper.kernels.installed import installed_blueprints
from esper.runtime import notify, printing
from esper.runtime.beside.link import WORLD_SIZE, Link, await_ready
from esper.session.host_hooks import require_unsteered
from esper.session.joining import HeldOut, Joining
from esper.session.options import Options, SessionOptions, WorkerIdentity
from esper.session.replay_link import ReplayLink, ReplayPlace
from esper.session.session import Session
from esper.session.sharding_check import (
    require_every_rank,
    require_one_state,
    require_values,
    require_whole,
    require_whole_state,
)

log = structlog.get_logger()

BELOW = ("optimizer", "base_optimizer")


def attach(
    model: torch.nn.Module,
    *,
    optimizer: torch.optim.Optimizer,
    sites: Sequence[str],
    run: str = "",
    holdout: HeldOut | None = None,
    **options: Unpack[Options],
) -> Session:
    """Join a model and its loop to a run; call once on every rank, after the model is built (and wrapped).

    `sites` name submodules whose output a seed may join. `holdout` is (batches, loss_fn): held-out (inputs, targets)
    and a function (outputs, targets) -> loss per example, shape [n]; a third entry is call(model, inputs) -> outputs,
    for a model of several inputs. Without it the gates that measure loss fail.
    `options` are the fields of SessionOptions. Without `run` the environment's ESPER_RUN is meant. Raises SettingError
    for a site or an option that does not exist, a model split by FSDP1, shared by some ranks alone or on the meta
    device, an optimizer that is split by ZeRO, maximizes, has no `lr` or a state of its own around another's, one whose
    session is not closed or a broken blueprint, TrainingError where another rank does not call it within `ready_s` and
    60 s, CheckpointError where there are some and none can be resumed from, RuntimeLostError where the runtime is not
    ready within `ready_s`; with `required=False` it trains unsteered then, and at once where no run is named. Where it
    raises, model and optimizer are as they were.
    """
    require_kinds(model, optimizer, sites)
    printing.outlive_a_full_disk()
    chosen, blueprints = SessionOptions.of(options), installed_blueprints()
    modules_at(undistributed(model), sites)  # raises before a process is started for nothing
    require_values(model)
    require_every_rank(model)
    require_whole(model)
    require_whole_state(bare(optimizer))
    require_one_state(optimizer)
    require_rate(bare(optimizer))
    require_descent(bare(optimizer))
    require_unsteered(bare(optimizer))
    tell_foreign(model, bare(optimizer))
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    identity = WorkerIdentity.of(chosen, rank, world_size)
    with ExitStack() as undo:
        link, run_id, chosen = _linked(identity, run, chosen)
        if link is not None:
            undo.callback(link.close)  # unless all of what follows is in order
        session = Joining(model, bare(optimizer), sites, holdout, chosen, identity, run_id).session(link, blueprints)
        undo.pop_all()
    notify.ready()
    return session


def require_kinds(model: object, optimizer: Any, sites: object) -> None:
    """Raises SettingError where two arguments changed places, or the one site was not put into a list."""
    if not isinstance(model, torch.nn.Module):
        raise SettingError("model", f"a {type(model).__name__}", "a torch.nn.Module")
    if not isinstance(bare(optimizer), torch.optim.Optimizer):
        raise SettingError("optimizer", f"a {type(optimizer).__name__}", "a torch.optim.Optimizer")
    if isinstance(sites, str):
        raise SettingError("sites", sites, f"a list of names, as [{sites!r}]")


def require_rate(optimizer: torch.optim.Optimizer) -> None:
    """Raises SettingError where there is none to tell of with each step, as in A2Grad."""
    if any("lr" not in group for group in optimizer.param_groups[:1]):
        raise SettingError("optimizer", f"{type(optimizer).__name__}, whose groups have no 'lr'", "one with a rate")


def require_descent(optimizer: torch.optim.Optimizer) -> None:
    """Raises SettingError where what is trained goes up: seeds go down, and a gate takes a lower loss for a gain."""
    if all(group.get("maximize") for group in optimizer.param_groups):
        raise SettingError("optimizer's maximize", True, "False, with the negated loss")


def tell_foreign(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Warn where the optimizer steps with nothing of the model: copies in float32, or another model's."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    if names and not held & {id(parameter) for parameter in model.parameters()}:
        log.warning("optimizer.foreign", optimizer=type(optimizer).__name__, not_held=listed(names))


def bare(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """What is below the wrappers of accelerate and Lightning, and below SAM: torch runs the hooks of this one."""
    for name in BELOW:
        inner = getattr(optimizer, name, None)
        if isinstance(inner, torch.optim.Optimizer):
            shares = getattr(optimizer, "param_groups", inner.param_groups) is inner.param_groups
            return bare(inner) if shares else optimizer
    return optimizer


def _linked(
    identity: WorkerIdentity, run: str, chosen: SessionOptions
) -> tuple[Link | ReplayLink | None, str, SessionOptions]:
    """To a runtime; on a replay to its plan, with checkpoints of its own."""
    replay = ReplayPlace.of(os.environ)
    if replay is None:
        return *_start_runtime(identity, run, chosen), chosen
    plan = replay.plan(identity.rank)
    if plan.world_size != identity.world_size:
        raise SettingError("number of ranks", identity.world_size, f"{plan.world_size}, as in the run that is replayed")
    torch.set_num_threads(plan.num_threads)
    environment = {**chosen.environment, "ESPER_KEYRING": str(replay.keyring)}
    folder = None if chosen.checkpoints is None else replay.checkpoints
    chosen = dataclasses.replace(chosen, resume=False, checkpoints=folder, environment=environment)
    return ReplayLink(plan, replay.report_file(identity.rank)), plan.run_id, chosen


def _start_runtime(identity: WorkerIdentity, run: str, options: SessionOptions) -> tuple[Link | None, str]:
    environment = dict(os.environ) | {"ESPER_NAME": identity.name, "ESPER_REGION": identity.region}
    if run:
        environment["ESPER_RUN"] = run
    environment |= {**options.environment, WORLD_SIZE: str(identity.world_size)}
    if not (options.required or environment.get("ESPER_RUN")):
        log.warning("training.unsteered", reason="no run is named, neither to attach() nor in ESPER_RUN")
        return None, "unsteered"
    link = Link(environment)
    link.start()
    try:
        return link, await_ready(link, options.patience_s())
    except RuntimeLostError as error:
        link.close()
        if options.required:
            raise
        log.warning("training.unsteered", reason=str(error))
        return None, environment.get("ESPER_RUN", "unsteered")
