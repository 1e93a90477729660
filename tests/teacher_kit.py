"""A teacher small enough for a test, its file, and a record of what was told."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from esper.bench.work.teachers.models import Block
from esper.kernels.teacher import int8
from esper.kernels.teacher.settings import MODES, Mode, TeacherSettings
from esper.kernels.teacher.teacher import CheckpointedTeacher
from esper.leyline import contracts as pb
from esper.tolaria.teachers.teachers import Teachers, TeacherSource

torch.set_num_threads(1)


AVAILABLE: list[Mode] = [mode for mode in MODES if mode != "int8" or int8.available()]


class Professor(nn.Module):
    """Eight inputs, six blocks in a ModuleList, three classes; with dropout, which must never fall."""

    scale: Tensor

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(6))
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(width, 3)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.head(self.dropout(x)) * self.scale
        return y


class Starved(Professor):
    """Tried with four questions it fits; more are too many for the memory in any mode."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if len(x) <= 4 else torch.empty(2**60, dtype=torch.uint8)


def professor(seed: int = 0) -> Professor:
    torch.manual_seed(seed)
    return Professor()


def saved(model: nn.Module, directory: Path) -> tuple[Path, str]:
    """Write the model's tensors where their digest names them; the path and the digest."""
    path = directory / "unnamed.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return path.rename(directory / f"{digest}.safetensors"), digest


def questions(num: int = 12, seed: int = 7) -> Tensor:
    return torch.randn(num, 8, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def answers(model: nn.Module, inputs: Tensor) -> Tensor:
    """What the plain model says in eval mode."""
    was = model.training
    logits: Tensor = model.eval()(inputs)
    model.train(was)
    return logits


@dataclass
class Told:
    """Events, in order: level, name, facts."""

    events: list[tuple[pb.TelemetryLevel, str, dict[str, str]]] = field(default_factory=list)

    def __call__(self, level: pb.TelemetryLevel, description: str, /, **attributes: str) -> None:
        self.events.append((level, description, attributes))

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.events]


def teacher_of(model: nn.Module, directory: Path, told: Told | None = None, **settings: object) -> CheckpointedTeacher:
    """From the model's file; the wrapped one is a copy whose own weights are others."""
    path, digest = saved(model, directory)
    fresh = type(model)()
    chosen = TeacherSettings(**settings)  # type: ignore[arg-type]
    return CheckpointedTeacher(fresh, path, digest=digest, settings=chosen, tell=told or Told())


def state_of(tensors: dict[str, Tensor]) -> nn.Module:
    """Something whose state_dict is this."""

    class State(nn.Module):
        def state_dict(self, *args: object, **kwargs: object) -> dict[str, Tensor]:  # type: ignore[override]
            return tensors

    return State()


def teachers(directory: Path, told: Told | None = None, **fields: object) -> Teachers:
    source = TeacherSource(**{"directory": directory, "factory": Professor, **fields})  # type: ignore[arg-type]
    return Teachers(source, tell=told or Told())


def register(digest: str, name: str = "t0") -> pb.OptimizerCommand:
    return pb.OptimizerCommand(
        version=1,
        command_id=name,
        command_type=pb.OptimizerCommandType.OPTIMIZER_COMMAND_REGISTER_TEACHER,
        optimizer_id="host",
        teacher_digest=digest,
    )


class Slow(Professor):
    """Answers once it may; its sample is tried while it is being loaded."""

    may_answer = threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        assert self.may_answer.wait(timeout=120.0)
        return super().forward(x)
