"""What came of each act, so that the same acts can be tried again: after a rollback, or in a new process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from zlib import crc32

import torch
from torch import Tensor

from esper.leyline import contracts as pb
from esper.session import Session
from tests.garden import marks
from tests.garden.loops import Loop
from tests.garden.marks import Marks
from tests.garden.plan import Act

Op = pb.SeedOperation
UNDONE = frozenset(
    {
        Op.SEED_OP_START_TRAINING,
        Op.SEED_OP_START_GRAFTING,
        Op.SEED_OP_STABILIZE,
        Op.SEED_OP_EVALUATE,
        Op.SEED_OP_FOSSILIZE,
        Op.SEED_OP_SET_ALPHA_TARGET,
    }
)
"""Of these a rollback leaves nothing; a germination counts on, and a cull stays."""
MEASURED = ("latency",)
"""Of what a gate has found, what is another each time."""
HYPERPARAMETERS = ("group ", "own ")
"""Names of what no rollback puts back begin so."""
PERIOD = 8
"""Steps after which everything that a seed does every so many steps falls on the same ones again."""


def sums(found: Marks) -> dict[str, int]:
    """A checksum for each."""
    return {name: _sum(value) for name, value in found.items()}


def _sum(value: object) -> int:
    if not isinstance(value, Tensor):
        return crc32(repr(value).encode())
    flat = value.detach().to_dense().contiguous().flatten()
    return crc32(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else 0


@dataclass(frozen=True)
class Stage:
    """An act, the step before which it was, and what came of it."""

    act: Act
    step: int
    sums: dict[str, int]
    violates: bool  # a seed reached beyond its own in this step
    lifts: bool  # a pruning was undone, or was to be


@dataclass
class Course:
    """Of one life."""

    stages: list[Stage] = field(default_factory=list)

    def note(self, act: Act, step: int, found: Marks, *, violates: bool, lifts: bool) -> None:
        self.stages.append(Stage(act, step, sums(found), violates, lifts))

    def since(self, step: int) -> list[Stage]:
        """From the act before this step on."""
        first = next((at for at, stage in enumerate(self.stages) if stage.step == step), len(self.stages))
        return self.stages[first:]

    def again(self, step: int, now: int) -> list[Stage]:
        """What can be done again once the state before `step` is put back before `now`; empty where it can't be."""
        stages = self.since(step)
        fits = (now - step) % PERIOD == 0 and stages and not any(map(_leaves_traces, stages[1:]))
        return stages if fits else []


def _leaves_traces(stage: Stage) -> bool:
    act = stage.act
    if act.goes_back or act.requests or act.epoch_ends or act.prefetches or act.snapshot or act.accuracy is not None:
        return True
    return any(not _is_undone(each) for each in act.commands)


def _is_undone(command: object) -> bool:
    if not isinstance(command, pb.AdaptationCommand):
        return False
    if command.HasField("seed_command"):
        return command.seed_command.operation in UNDONE and "auto" not in command.seed_command.parameters
    return command.HasField("pause_command")


def answers(receipts: Sequence[pb.CommandReceipt]) -> Marks:
    """What was said to each command of an act that is no rollback."""
    return {
        f"answer {place}": (each.status, each.reason, each.stage, each.gate, _evidence(each))
        for place, each in enumerate(receipts)
        if "rolled back" not in each.detail
    }


def _evidence(receipt: pb.CommandReceipt) -> list[tuple[str, float]]:
    return sorted((name, value) for name, value in receipt.evidence.items() if not name.startswith(MEASURED))


def acts_again(stages: Sequence[Stage], step: int) -> list[Act]:
    """The first of them is the rollback itself: its step is the one that was taken then."""
    return [Act(stages[0].act.number, goes_back=step), *(replace(stage.act) for stage in stages[1:])]


def found(loop: Loop, run: Session) -> Marks:
    """What a step has come to."""
    teacher = None if run.teachers is None or run.teachers.current is None else run.teachers.current.digest
    return marks.of_all(loop) | marks.of_seeds(run) | {"teacher": teacher}


def otherwise(now: Mapping[str, int], then: Mapping[str, int], but: tuple[str, ...] = ()) -> list[str]:
    """Names of what is not the same in both, but for those that begin so."""
    names = sorted(now.keys() | then.keys())
    return [name for name in names if now.get(name) != then.get(name) and not name.startswith(but or "\0")]
