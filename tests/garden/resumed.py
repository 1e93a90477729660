"""The same acts from a checkpoint on, in what a new process would make: a new host, optimizer and session."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from torch import Tensor

from esper.leyline import contracts as pb
from esper.session import Session
from esper.tolaria.checkpoints.store import TENSORS, Store, step_of
from tests.garden import marks
from tests.garden.course import Stage, answers, found, otherwise, sums
from tests.garden.joined import acted, joined
from tests.garden.latest import Again
from tests.garden.loops import Loop
from tests.garden.plan import Plan
from tests.garden.wrong import require


@dataclass(frozen=True)
class Saved:
    """What the script itself saves beside a checkpoint: its scheduler, its scaler, unused gradients."""

    at: int  # which act of the life it was
    own: dict[str, Any]
    gradients: dict[str, Tensor | None]
    awaits: bool  # a teacher is on its way, which has arrived where a process goes on from here

    @classmethod
    def of(cls, loop: Loop, at: int, run: Session) -> Saved:
        gradients = {n: None if p.grad is None else p.grad.clone() for n, p in loop.host.named_parameters()}
        awaits = run.teachers is not None and bool(run.teachers.state_dict()["pending"])
        return cls(at, loop.own_state(), gradients, awaits)


@dataclass(frozen=True)
class Resumed:
    """Further processes of a life, each of which goes on from the newest checkpoint that is whole."""

    plan: Plan
    folder: Path
    store: Store
    saved: Mapping[int, Saved]  # by step
    stages: Sequence[Stage]

    def live(self) -> None:
        """Wrong where one of them does not come to what the life came to."""
        randomness = marks.randomness()
        for again in self.plan.agains:
            if standing := self.store.standing():
                harm(standing, again.harm)
                self._once_more(again)
        marks.put_randomness(randomness)

    def _once_more(self, again: Again) -> None:
        newest = self.store.newest()[0].step
        loop = Loop(self.plan.host, self.plan.manner, self.plan.habits)
        run = joined(self.plan, loop, self.folder, resume=True)
        require(run.step_number == newest, f"resumed before step {run.step_number}; the newest is of {newest}")
        saved = self.saved[newest]
        read = loop.reader.num_read
        require(read == (saved.at if self.plan.reads else 0), f"the loader stands at {read}, not at {saved.at}")
        loop.reader.num_read = saved.at
        own, told = loop.own_state(), ("scheduler", "scaler") if self.plan.manner.tells else ("scaler",)
        odd = [name for name in told if own.get(name) != saved.own.get(name)]
        require(not odd, f"resumed, state was not put back of {', '.join(odd)}")
        loop.take_over(copy.deepcopy(saved.own))
        for name, parameter in loop.host.named_parameters():
            kept = saved.gradients[name]
            parameter.grad = None if kept is None else kept.clone()
        stages = [] if saved.awaits else _comparable(self.stages[saved.at :])[: again.num]
        for at, stage in enumerate(stages, saved.at):
            if at > saved.at and _is_unseen(run, stage):
                break
            self._live_through(stage, at, loop, run, is_first=at == saved.at)
        if again.closes:
            run.close()
        else:
            run.abandon()

    def _live_through(self, stage: Stage, at: int, loop: Loop, run: Session, *, is_first: bool) -> None:
        """The order of the first act is in the checkpoint."""
        order = None if is_first else acted(run, stage.act, at + 1)
        require(run.step_number == stage.step, f"resumed it stands before {run.step_number}, not {stage.step}")
        loop.step(stage.act.number, run)
        answer = None if order is None else run.exchange.boundary.on_commit(order)
        told = answers(() if answer is None else answer.receipts)
        odd = otherwise(sums(found(loop, run) | told), stage.sums, but=("answer ",) if is_first else ())
        require(not odd, f"resumed it came otherwise in step {stage.step}: {odd}")


def harm(standing: Sequence[Path], how: str) -> None:
    """Those of the newest step, where there is another; a step that was tried anew may have several."""
    newest = [path for path in standing if step_of(path) == step_of(standing[0])]
    if not how or len(newest) == len(standing):
        return
    for path in newest:
        if how == "gone":
            rmtree(path)
        else:
            blob = path / TENSORS
            blob.write_bytes(blob.read_bytes()[:-1])


def _is_unseen(run: Session, stage: Stage) -> bool:
    """Whether a seed is to germinate where no batch has come by in this process, as one may have in the old one."""
    slots = run.executor._slots
    commands = [each.seed_command for each in stage.act.commands if isinstance(each, pb.AdaptationCommand)]
    return any(each.site in slots and slots[each.site].shape is None for each in commands)


def _comparable(stages: Sequence[Stage]) -> Sequence[Stage]:
    """As far as a new process can do the same.

    Snapshots that memory alone held are gone with the old one; and as it looks closely at the first call of each seed,
    it stops a write to the host there that the old one has only found afterwards. Nor has it copies of what was pruned
    before it, to undo that by.
    """
    ends = (at for at, stage in enumerate(stages) if stage.violates or (at and (stage.act.goes_back or stage.lifts)))
    return stages[: next(ends, len(stages))]
