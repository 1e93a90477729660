"""The script of a run: what a process does, in its first life, in a later one, and when it is run again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch

from esper.leyline import contracts as pb
from esper.session import Session
from esper.session.joining import Joining
from esper.session.options import Place, SessionOptions
from esper.session.replay_link import ReplayLink
from esper.session.rulings import RecordedRulings
from tests.garden import course, marks
from tests.garden.hosts import KINDS, each_loss
from tests.garden.joined import Lenient
from tests.garden.loops import Loop
from tests.garden.odd import ALL
from tests.replayed.plan import Plan
from tests.replayed.rank import Rank


@dataclass
class Kept:
    """What the script itself saves at each step, and what every step came to: the newest life's word counts."""

    own: dict[int, tuple[dict[str, Any], list[Any]]] = field(default_factory=dict)
    sums: dict[int, dict[str, int]] = field(default_factory=dict)


def join(plan: Plan, loop: Loop, link: Rank | ReplayLink, folder: Path, keyring: Path, run_id: str) -> Session:
    kind = KINDS[plan.kind]
    holdout = [(kind.batch(-100 - at), torch.empty(0)) for at in range(2)]
    options: dict[str, Any] = {"settings": plan.settings, "scaler": loop.scaler, "own_host": plan.own_host}
    if loop.scheduler is not None:
        options["scheduler"] = loop.scheduler
    options |= {
        "checkpoints": folder if plan.checkpoints else None,
        "checkpoint_every": plan.checkpoints,
        "environment": {"ESPER_KEYRING": str(keyring)},
        "resume": isinstance(link, Rank) and plan.checkpoints > 0,
        "name": "worker-0",
    }
    chosen = SessionOptions.of(options)
    loss = (holdout, lambda outputs, _: each_loss(outputs))
    joining = Joining(loop.host, loop.optimizer, kind.sites, loss, chosen, Place.of(chosen, 0, 1), run_id)
    return joining.session(link, ALL)  # type: ignore[arg-type]


def portrayed(run: Session) -> pb.Heartbeat:
    """A heartbeat that asks for a round where a seed does."""
    due = bool(run.executor.requests())
    return run.portrait.heartbeat(run.step_number, run.epoch, barrier_due=due)


def train(
    plan: Plan, link: Rank | ReplayLink, join: Callable[[Loop], Session], kept: Kept, ends: Callable[[], bool]
) -> Session:
    """From its first line to its last, unless it is killed or a replay ends it."""
    marks.seed_all(plan.seed)
    loop = Loop(KINDS[plan.kind], plan.manner)
    run = join(loop)
    rulings = run.executor.rulings
    if plan.lenient and isinstance(rulings, RecordedRulings):
        rulings.fresh = Lenient(rulings.fresh)
    elif plan.lenient:
        run.executor.rulings = Lenient(rulings)
    if isinstance(link, Rank):
        link.portray = lambda: portrayed(run)
        if run.step_number in kept.own and run.step_number > 1:
            own, gradients = kept.own[run.step_number]
            loop.take_over(copy.deepcopy(own))
            for parameter, gradient in zip(loop.host.parameters(), gradients, strict=True):
                parameter.grad = None if gradient is None else gradient.clone()
    for _ in count():
        for number in run.batches(lambda epoch: range(epoch * plan.per_epoch, (epoch + 1) * plan.per_epoch)):
            kept.own[run.step_number] = loop.own_state(), [copy.copy(p.grad) for p in loop.host.parameters()]
            step = run.step_number
            loop.step(number, run)
            kept.sums[step] = course.sums(marks.of_model(loop) | marks.of_gradients(loop) | marks.of_seeds(run))
        run.epoch_end()
        if ends():
            break
    run.close()
    return run
