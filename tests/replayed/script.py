"""The script of a run: what a process does, in its first life, in a later one, and when it is run again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import torch

from esper.kernels.split import own_part, placed
from esper.leyline import contracts as pb
from esper.session import Session
from esper.session.joining import Joining
from esper.session.options import SessionOptions, WorkerIdentity
from esper.session.replay_link import ReplayLink
from esper.session.rulings import RecordedRulings
from tests.garden import course, marks
from tests.garden.hosts import each_loss
from tests.garden.joined import Lenient
from tests.garden.loops import Loop
from tests.garden.odd import ALL
from tests.garden.rare import EVERY
from tests.garden.teachers import Lesson
from tests.grove.script import Script as OfTwo
from tests.grove.taught import taught_by
from tests.replayed.plan import Plan
from tests.replayed.view import View

Script = Loop | OfTwo
Own = tuple[dict[str, Any], list[Any]]
Join = Callable[[Script], Session]


class Live(Protocol):
    """A link that is told how its trainer stands."""

    portray: Callable[[], pb.Heartbeat] | None
    look: Callable[[], View]


@dataclass
class Kept:
    """What the script itself saves at each step, and what every step came to: the newest life's word counts."""

    own: MutableMapping[int, Own] = field(default_factory=dict)
    sums: dict[int, dict[str, int]] = field(default_factory=dict)


def join(
    plan: Plan, loop: Loop, link: Live | ReplayLink, folder: Path, keyring: Path, run_id: str, name: str = "worker-0"
) -> Session:
    kind, is_live = EVERY[plan.kind], not isinstance(link, ReplayLink)
    holdout = [(kind.batch(-100 - at), torch.empty(0)) for at in range(2)]
    options: dict[str, Any] = {"settings": plan.settings, "scaler": loop.scaler, "own_host": plan.own_host}
    if plan.pruning is not None:
        options["pruning"] = plan.pruning
    if loop.scheduler is not None and loop.manner.tells:
        options["scheduler"] = loop.scheduler
    options |= {
        "checkpoints": folder if plan.checkpoints else None,
        "checkpoint_every": plan.checkpoints,
        "environment": {"ESPER_KEYRING": str(keyring)},
        "resume": is_live and plan.checkpoints > 0,
        "name": name,
    }
    if plan.taught is not None:
        options["teachers"] = plan.taught.source(plan.kind, folder.parent / "teachers", name, is_live=is_live)
    chosen = SessionOptions.of(options)
    loss = (holdout, lambda outputs, _: each_loss(outputs))
    joining = Joining(loop.host, loop.optimizer, kind.sites, loss, chosen, WorkerIdentity.of(chosen, 0, 1), run_id)
    return joining.session(link, ALL)  # type: ignore[arg-type]


def portrayed(run: Session) -> pb.Heartbeat:
    """A heartbeat that asks for a round where a seed does."""
    due = bool(run.executor.requests()) or (run.teachers is not None and run.teachers.has_news)
    return run.status.heartbeat(run.step_number, run.epoch, barrier_due=due)


def looped(plan: Plan) -> Callable[[], Loop]:
    """The script of a single process, from its first line on."""

    def make() -> Loop:
        marks.seed_all(plan.seed)
        return Loop(EVERY[plan.kind], plan.manner, plan.habits)

    return make


def train(
    make: Callable[[], Script],
    link: Live | ReplayLink,
    join: Join,
    kept: Kept,
    plan: Plan,
    began: Callable[[], object] = lambda: None,
) -> Session:
    """From its first line to its last, unless it is killed or a replay ends it. `began` is called in each step."""
    script = make()
    run = join(script)
    rulings = run.executor.rulings
    if plan.lenient and isinstance(rulings, RecordedRulings):
        rulings.fresh = Lenient(rulings.fresh)
    elif plan.lenient:
        run.executor.rulings = Lenient(rulings)
    is_live = not isinstance(link, ReplayLink)
    if plan.taught is not None:
        script.lesson = Lesson(plan.kind, plan.taught.wide, run)
    if plan.compiles and isinstance(script, Loop):
        torch._dynamo.reset()  # a process that begins has compiled nothing: code for other shapes may round otherwise
        script.host.compile(backend=plan.backend)
    if not isinstance(link, ReplayLink):
        link.portray, link.look = lambda: portrayed(run), lambda: View.of(run)
        if run.step_number in kept.own and run.step_number > 1:
            take_over(script, *kept.own[run.step_number])
    for _ in count():
        for number in map(int, run.batches(plan.numbers)):
            if plan.taught is not None and is_live:
                plan.taught.arrive(run)
            kept.own[run.step_number] = script.own_state(), [*gradients(script)]
            step = run.step_number
            script.step(number, run, began)
            kept.sums[step] = summed(script, run)
        run.epoch_end()
        if is_live and run.step_number > plan.num_steps:
            break
    run.close()
    return run


def gradients(script: Script) -> Iterator[Any]:
    """Of each parameter what this rank holds of it."""
    for parameter in script.host.parameters():
        yield None if parameter.grad is None else copy.copy(own_part(parameter.grad))


def take_over(script: Script, own: dict[str, Any], gradients: list[Any]) -> None:
    """What a script's own checkpoint has kept."""
    if isinstance(script, Loop):
        script.take_over(copy.deepcopy(own))
    else:
        for name, part in (("scaler", script.scaler), ("scheduler", script.scheduler)):
            if part is not None:
                part.load_state_dict(copy.deepcopy(own[name]))
    for parameter, gradient in zip(script.host.parameters(), gradients, strict=True):
        parameter.grad = None if gradient is None else placed(gradient.clone(), parameter)


def summed(script: Script, run: Session) -> dict[str, int]:
    """What a step came to."""
    of_host = marks.of_model(script) | marks.of_gradients(script)  # type: ignore[arg-type]
    return course.sums(of_host | marks.of_seeds(run) | taught_by(run))
