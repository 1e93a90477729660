"""A session of one of several ranks, without a runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from esper.session import Session
from esper.session.joining import Joining
from esper.session.options import SessionOptions, WorkerIdentity
from tests.garden.hosts import each_loss
from tests.garden.joined import RUN, Lenient, keyring_at
from tests.garden.odd import ALL
from tests.garden.teachers import Lesson
from tests.garden.wide import pruning_of
from tests.grove.plan import Plan
from tests.grove.script import Script


def joined(plan: Plan, script: Script, folder: Path, *, resume: bool = False) -> Session:
    """With the model wrapped by then, or wrapped behind it."""
    if plan.sharing.way != "ddp after":
        script.wrap()
    holdout = [(script.kind.batch(-100 - at), torch.empty(0)) for at in range(2)]
    options: dict[str, Any] = {"settings": plan.settings, "scaler": script.scaler, "required": False}
    if script.scheduler is not None:
        options["scheduler"] = script.scheduler
    if plan.checkpoints:
        environment = {"ESPER_KEYRING": str(keyring_at(folder))}
        options |= {
            "checkpoints": folder / "checkpoints",
            "checkpoint_every": plan.checkpoints,
            "environment": environment,
        }
    if plan.prunes:
        options["pruning"] = pruning_of(plan.seed, script.host)
    if plan.taught is not None:
        name = f"worker-{script.rank}"
        options["teachers"] = plan.taught.source(plan.kind, folder / "teachers", name, is_live=True)
    chosen = SessionOptions.of(options | {"resume": resume})
    identity = WorkerIdentity.of(chosen, script.rank, plan.more.world_size)
    loss = (holdout, lambda outputs, _: each_loss(outputs))
    run = Joining(script.model, script.optimizer, script.kind.sites, loss, chosen, identity, RUN).session(None, ALL)
    if plan.sharing.way == "ddp after":
        script.wrap()
    if plan.taught is not None:
        script.lesson = Lesson(plan.kind, plan.taught.wide, run)
    if plan.lenient:
        run.executor.rulings = Lenient(run.executor.rulings)
    return run
