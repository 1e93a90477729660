"""What a drawn run distils from: files that a rank may lack, and when each of them has arrived there."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import torch
from torch import Tensor, nn

from esper.kernels.teacher.teacher import CheckpointedTeacher, Tell
from esper.leyline import contracts as pb
from esper.session import Session
from esper.tolaria.teachers.source import TeacherSource
from tests.garden.rare import EVERY
from tests.garden.teachers import Faculty
from tests.garden.wide import DISTILS, Wide

MOODS = ("", "", "", "", "", "", "has no memory", "overflows", "is built by a broken factory")
HARMS = ("is missing", "is torn", "is another's", "goes")


class Gate:
    """Before it a teacher's thread waits until its trainer is at a drawn step: else the clock would say at which."""

    def __init__(self) -> None:
        self._is_open = threading.Event()

    def wait(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._is_open.wait()

    def open(self) -> None:
        self._is_open.set()

    def close(self) -> None:
        self._is_open.clear()


@dataclass(frozen=True)
class Awaited(TeacherSource):
    """Whose teachers come when its gate is open."""

    gate: Gate = field(default_factory=Gate)

    def opened(self, digest: str, model: nn.Module, tell: Tell) -> CheckpointedTeacher:
        self.gate.wait()
        return super().opened(digest, model, tell)


@dataclass(frozen=True)
class Taught:
    """Of one run. `lacks`: by worker, how the first teacher's file is harmed there while the run is lived."""

    seed: int
    wide: Wide
    lacks: Mapping[str, str]

    @classmethod
    def draw(cls, seed: int, num: int) -> Taught:
        dice = Random(f"taught {seed}")
        wide = Wide(
            dice.choice(DISTILS),
            dice.choice(["full", "offload"]),
            dice.choice(MOODS),
            is_tried=dice.random() < 0.5,
            budget=dice.choice([0.0, 0.0, 0.0, 1.5]),
        )
        workers = [f"worker-{dice.randrange(num)}"] if dice.random() < 0.4 else []
        return cls(seed, wide, {each: dice.choice(HARMS) for each in workers})

    @property
    def may_fail(self) -> bool:
        """Whether there may be a fault of which the clock or the memory decides what comes of it."""
        is_sure = self.wide.is_tried and not (self.wide.mood or self.wide.budget)
        return not is_sure or "goes" in self.lacks.values()

    def digests(self, kind: str, folder: Path) -> list[str]:
        """What may be registered; most often there is such a file."""
        faculty = self._faculty(kind, folder)
        return [*faculty.digests * 4, *faculty.bad]

    def source(self, kind: str, folder: Path, worker: str, *, is_live: bool) -> Awaited:
        """Of this worker; when the run is told again, each file has been brought."""
        faculty = self._faculty(kind, folder / worker)
        if is_live:
            self._harm(folder / worker, faculty.digests, worker)
        made = faculty.source()
        awaited = Awaited(made.directory, made.factory, made.settings, sample=made.sample)
        if not is_live:
            awaited.gate.open()
        return awaited

    def _faculty(self, kind: str, folder: Path) -> Faculty:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return Faculty(EVERY[kind], self.wide, folder, nn.Identity())

    def _harm(self, folder: Path, digests: list[str], worker: str) -> None:
        first, second = (folder / f"{each}.safetensors" for each in digests)
        match self.lacks.get(worker):
            case "is missing":
                first.unlink()
            case "is torn":
                first.write_bytes(first.read_bytes()[:-3])
            case "is another's":
                first.write_bytes(second.read_bytes())

    def arrive(self, run: Session) -> None:
        """Before a step: whether what is on its way to this rank comes now."""
        worker, step = run.status.identity.name, run.step_number
        assert run.teachers is not None and isinstance(run.teachers.source, Awaited)
        source, dice = run.teachers.source, Random(f"arrives {self.seed} {worker} {step}")
        if self.lacks.get(worker) == "goes" and step > 20:
            for each in Path(source.directory).iterdir():
                each.unlink()
        if dice.random() < 0.4:
            source.gate.open()
            run.teachers.wait()
            source.gate.close()


def registers(digest: str) -> pb.OptimizerCommand:
    kind = pb.OptimizerCommandType.OPTIMIZER_COMMAND_REGISTER_TEACHER
    return pb.OptimizerCommand(
        version=1, command_id="teacher", command_type=kind, optimizer_id="host", teacher_digest=digest
    )


def let_go(run: Session) -> None:
    """A life is over: nothing waits any more."""
    if run.teachers is not None and isinstance(run.teachers.source, Awaited):
        run.teachers.source.gate.open()


def taught_by(run: Session) -> dict[str, Tensor | str]:
    """Which one there is, as a mark."""
    current = None if run.teachers is None else run.teachers.current
    return {} if run.teachers is None else {"teacher": "" if current is None else current.digest}
