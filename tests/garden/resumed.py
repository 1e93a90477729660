"""The same acts from a checkpoint on, in what a new process would make: a new host, optimizer and session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from esper.leyline import contracts as pb
from esper.session import Session
from tests.garden import marks
from tests.garden.course import Stage, answers, found, otherwise, sums
from tests.garden.joined import acted, joined
from tests.garden.loops import Loop
from tests.garden.plan import Plan
from tests.garden.wrong import require


@dataclass(frozen=True)
class Saved:
    """What the script itself saves beside the checkpoint of a step: its scheduler, its scaler, unused gradients."""

    step: int
    at: int  # which act of the life it was
    own: dict[str, Any]
    gradients: dict[str, Tensor | None]

    @classmethod
    def of(cls, loop: Loop, step: int, at: int) -> Saved:
        named = loop.host.named_parameters()
        return cls(step, at, loop.own_state(), {n: None if p.grad is None else p.grad.clone() for n, p in named})


def resume(plan: Plan, folder: Path, saved: Saved, stages: Sequence[Stage]) -> None:
    """From the newest checkpoint, and do the same again; the order of the first act is in the checkpoint."""
    loop, randomness = Loop(plan.host, plan.manner, plan.habits), marks.randomness()
    run = joined(plan, loop, folder, resume=True)
    if run.step_number == saved.step:  # else a rollback has undone it, and an older one was taken
        loop.take_over(saved.own)
        for name, parameter in loop.host.named_parameters():
            parameter.grad = saved.gradients[name]
        for at, stage in enumerate(_comparable(stages[saved.at :]), saved.at):
            order = None
            if at > saved.at:
                if _is_unseen(run, stage):
                    break
                order = acted(run, stage.act, at + 1)
            require(run.step_number == stage.step, f"resumed it stands before {run.step_number}, not {stage.step}")
            loop.step(stage.act.number, run)
            answer = None if order is None else run.exchange.boundary.on_commit(order)
            told = answers(() if answer is None else answer.receipts)
            odd = otherwise(sums(found(loop, run) | told), stage.sums, but=() if at > saved.at else ("answer ",))
            require(not odd, f"resumed it came otherwise in step {stage.step}: {odd}")
    run.close()
    marks.put_randomness(randomness)


def _is_unseen(run: Session, stage: Stage) -> bool:
    """Whether a seed is to germinate where no batch has come by in this process, as one may have in the old one."""
    slots = run.executor._slots
    commands = [each.seed_command for each in stage.act.commands if isinstance(each, pb.AdaptationCommand)]
    return any(each.site in slots and slots[each.site].shape is None for each in commands)


def _comparable(stages: Sequence[Stage]) -> Sequence[Stage]:
    """As far as a new process can do the same.

    Snapshots that memory alone held are gone with the old one; and as it looks closely at the first call of each seed,
    it stops a write to the host there that the old one has only found afterwards.
    """
    ends = (at for at, stage in enumerate(stages) if stage.violates or (at and stage.act.goes_back))
    return stages[: next(ends, len(stages))]
