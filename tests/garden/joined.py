"""A session without a runtime, and how the acts of a life reach it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from esper.errors import RefusedError
from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.rules import Evidence, GateResult, ResetEvidence, SanityEvidence
from esper.kasmina.moves import Rulings
from esper.kernels.kernel import Kernel
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.session import Session
from esper.session.joining import Joining
from esper.session.options import SessionOptions, WorkerIdentity
from tests.garden import further
from tests.garden.besides import Several
from tests.garden.hosts import each_loss
from tests.garden.latest import AHEAD_NS
from tests.garden.loops import Loop
from tests.garden.odd import ALL
from tests.garden.orders import rolled_back
from tests.garden.plan import Act, Plan
from tests.garden.teachers import Faculty, Lesson
from tests.garden.wide import pruning_of

RUN = "garden-00000000"


@dataclass(frozen=True)
class Lenient:
    """Lets through what is finite, where loss and gradients are judged: most seeds would go no further."""

    fresh: Rulings

    def admit(self, *names: str) -> None:
        self.fresh.admit(*names)

    def verdict(self, evidence: Evidence, config: KasminaConfig) -> GateResult:
        result = self.fresh.verdict(evidence, config)
        offends = any(result.evidence.get(name) for name in ("violations", "mismatches"))
        if result.passed or result.non_finite or offends or isinstance(evidence, SanityEvidence | ResetEvidence):
            return result
        return GateResult(True, result.detail, result.evidence, score=result.score)


def keyring_at(folder: Path) -> Path:
    """Signs checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "keyring.json"
    if not path.exists():
        MasterKeyring.new(time.time_ns()).derive(RUN, [Role.WORKER]).save(path)
    return path


def joined(plan: Plan, loop: Loop, folder: Path | None, *, resume: bool = False) -> Session:
    """A session without a runtime, with everything else."""
    kind = plan.host
    holdout = [(kind.batch(-100 - at), torch.empty(0)) for at in range(2)]
    options: dict[str, Any] = {"settings": plan.settings, "scaler": loop.scaler, "required": False}
    options["own_host"] = plan.habits.own_host and plan.manner.optimizer != "lbfgs"
    if loop.scheduler is not None and plan.manner.tells:
        options["scheduler"] = loop.scheduler.each if isinstance(loop.scheduler, Several) else loop.scheduler
    if plan.reads:
        options["loader"] = loop.reader
    if folder is not None and plan.checkpoints:
        environment = {"ESPER_KEYRING": str(keyring_at(folder))}
        options |= {"checkpoints": folder, "checkpoint_every": plan.checkpoints, "environment": environment}
    options |= {"steps_per_epoch": plan.steps_per_epoch, "checkpoints_kept": plan.checkpoints_kept}
    options |= _wide_options(plan, loop, folder)
    chosen = SessionOptions.of(options | {"resume": resume})
    loss = (holdout, lambda outputs, _: each_loss(outputs))
    joining = Joining(loop.host, loop.optimizer, kind.sites, loss, chosen, WorkerIdentity.of(chosen, 0, 1), RUN)
    run = joining.session(None, ALL)
    if plan.is_ahead and not resume and run.checkpoints is not None:
        run.checkpoints.clock_ns = lambda: time.time_ns() + AHEAD_NS
    if plan.wide.lasts:
        kernels = run.executor.kernels
        clock: Callable[[], float] = lambda: run.step_number  # noqa: E731
        kernels.pool._shelf = type(kernels.pool._shelf)(2**20, plan.wide.lasts, clock, Kernel.get_memory_size)
    if plan.wide.teaches:
        loop.lesson = Lesson(plan.kind, plan.wide, run)
        if plan.wide.is_awaited:
            run.registrations.recorded = {"": pb.CommandReceipt()}  # as on a replay: what is on its way is waited for
    if plan.seed >= further.FIRST_SEED:
        further.put_on_the_clock(run)
    if plan.lenient:
        run.executor.rulings = Lenient(run.executor.rulings)
    return run


def _wide_options(plan: Plan, loop: Loop, folder: Path | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if plan.wide.prunes:
        options["pruning"] = pruning_of(plan.seed, loop.host)
    if plan.wide.teaches:
        assert folder is not None
        options["teachers"] = Faculty(plan.host, plan.wide, folder / "teachers", loop.host).source()
    return options


def acted(run: Session, act: Act, at: int) -> pb.CommitOrder | None:
    """Have all of it take effect at the next step; its order, if it has one. `at` numbers the acts of a life."""
    if act.epoch_ends:
        run.epoch_end()
    if act.prefetches is not None:
        with suppress(RefusedError):
            run.prefetch(*act.prefetches)
    if act.accuracy is not None:
        run.note(accuracy=act.accuracy)
    if act.exports:
        run.export_importance("of the script")
    order = ordered(run, act, at) if act.has_order else None
    if order is not None:
        for each in _paused(order, act.halts) if act.paused else [order]:
            run.exchange.boundary.on_commit(each)
    return order


def _paused(order: pb.CommitOrder, halts: bool) -> list[pb.CommitOrder]:
    """The run stands still before the order, and goes on behind it."""
    around = []
    for place, resume in ((0, False), (2, True)):
        name, step = f"{order.commit.round}-{resume}", order.commit.effective_step
        ref = pb.CommittedCommand(command_id=name, envelope_digest=name.encode().ljust(32, b"\0"))
        pause = pb.AdaptationCommand(version=1, command_id=name, pause_command=pb.PauseCommand(resume=resume))
        if halts and not resume:
            pause.emergency_command.level = pb.EmergencyLevel.EMERGENCY_HALT
        commit = pb.BarrierCommit(version=1, round=order.commit.round + place, effective_step=step)
        around.append(pb.CommitOrder(commit=commit, commands=[pb.OpenedCommand(ref=ref, adaptation=pause)]))
    order.commit.round += 1
    return [around[0], order, around[1]]


def ordered(run: Session, act: Act, at: int) -> pb.CommitOrder:
    """The act's commands as a commit for the next step."""
    commands = [rolled_back()] if act.goes_back else act.commands
    opened = []
    for place, command in enumerate(commands):
        digest = f"{at}.{place}".encode().ljust(32, b"\0")
        ref = pb.CommittedCommand(command_id=f"{at}.{place}", envelope_digest=digest, snapshot_step=act.goes_back)
        body: Mapping[str, Any] = {"adaptation" if isinstance(command, pb.AdaptationCommand) else "optimizer": command}
        opened.append(pb.OpenedCommand(ref=ref, **body))
    commit = pb.BarrierCommit(
        version=1,
        round=run.exchange.boundary.round_applied + 1,
        effective_step=run.step_number,
        snapshot=act.snapshot,
        requests=act.requests,
    )
    return pb.CommitOrder(commit=commit, commands=opened)
