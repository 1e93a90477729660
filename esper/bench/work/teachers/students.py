"""Students of the documents' size, and of handwritten digits, with a teacher's logits in their loss and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from esper.bench.arm import Ready
from esper.bench.work.teachers.models import mlp
from esper.bench.work.teachers.softened import documents
from esper.kernels.distillation import KD_WEIGHT, TEMPERATURE, StaticKDLoss
from esper.kernels.teacher.teacher import CheckpointedTeacher

MOST_STEPS, READ_EVERY = 2_000, 5
BATCH, NUM_HIDDEN, RATE = 32, 16, 3e-3


Soft = Callable[[Tensor, Tensor], Tensor]
"""(logits, inputs) -> what is added to the hard loss."""


class Step:
    """A training step of one student. Two arms must agree on the hard loss of their first one, and on how many times
    what it should be is added to it: else one that adds nothing would pass for one that distils."""

    def __init__(
        self, widths: tuple[int, ...], batch: int, soft: Soft | None = None, teacher: tuple[int, ...] = ()
    ) -> None:
        """`teacher`: widths of the one whose logits `soft` goes by."""
        self.student, self.soft = mlp(widths).train(), soft
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.01, momentum=0.9)
        draw = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(batch, widths[0], generator=draw)
        self.targets = torch.randint(0, widths[-1], (batch,), generator=draw)
        self.expected = kd_value(widths, teacher, self.inputs) if teacher else 0.0
        self.first: tuple[float, float] | None = None  # the hard loss, and what was added

    def __call__(self) -> None:
        logits = self.student(self.inputs)
        hard = loss = functional.cross_entropy(logits, self.targets)
        if self.soft is not None:
            loss = hard + self.soft(logits, self.inputs)
        if self.first is None:
            self.first = float(hard.detach()), float((loss - hard).detach())
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def ready(self) -> Ready:
        return Ready(self, self._answer)

    def _answer(self) -> list[str | float]:
        """The hard loss bit for bit; what was added as a share of the documents' own line in double precision."""
        assert self.first is not None  # one untimed call came before
        hard, added = self.first
        return [hard.hex(), added / self.expected if self.expected else 1.0 + added]


def alone(student: tuple[int, ...], batch: int) -> Ready:
    return Step(student, batch).ready()


def taught(student: tuple[int, ...], teacher: tuple[int, ...], batch: int) -> Ready:
    """The teacher runs in every step."""
    frozen, kd = CheckpointedTeacher(mlp(teacher)), StaticKDLoss()

    def soft(logits: Tensor, inputs: Tensor) -> Tensor:
        loss: Tensor = kd(logits, frozen(inputs))
        return loss

    return Step(student, batch, soft, teacher).ready()


def taught_by_hand(student: tuple[int, ...], teacher: tuple[int, ...], batch: int) -> Ready:
    """The same without us: the bare teacher under no_grad in every step, and the documents' line."""
    frozen = mlp(teacher)

    def soft(logits: Tensor, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            theirs = frozen(inputs)
        return KD_WEIGHT * documents(logits, theirs, TEMPERATURE)

    return Step(student, batch, soft, teacher).ready()


def taught_from_kept(student: tuple[int, ...], teacher: tuple[int, ...], batch: int) -> Ready:
    """The teacher's logits are kept from an earlier pass over the data: a step adds the loss alone."""
    frozen, kd, kept = CheckpointedTeacher(mlp(teacher)), StaticKDLoss(), list[Tensor]()

    def soft(logits: Tensor, inputs: Tensor) -> Tensor:
        if not kept:
            kept.append(frozen(inputs))
        loss: Tensor = kd(logits, kept[0])
        return loss

    return Step(student, batch, soft, teacher).ready()


def kd_value(student: tuple[int, ...], teacher: tuple[int, ...], inputs: Tensor) -> float:
    """What both come to when new, for StaticKDLoss as it is by default."""
    with torch.no_grad():
        ours, theirs = (mlp(widths).double()(inputs.double()) for widths in (student, teacher))
        return KD_WEIGHT * float(documents(ours, theirs, TEMPERATURE))


@dataclass(frozen=True)
class Digits:
    """1,797 digits of 8 x 8, two thirds to train on and a third held out, and a teacher's logits for all of them."""

    images: Tensor
    targets: Tensor
    cut: int
    logits: Tensor
    teacher_accuracy: float

    @classmethod
    def load(cls) -> Digits:
        from sklearn.datasets import load_digits  # most of two seconds, with scipy.stats, which few who come here need

        inputs, classes = (torch.tensor(values) for values in load_digits(return_X_y=True))
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
        images, targets = (inputs / 16.0).float()[order], classes.long()[order]
        cut = len(images) * 2 // 3
        teacher = trained_teacher(images[:cut], targets[:cut])
        with torch.no_grad():
            return cls(images, targets, cut, teacher(images), read(teacher, images[cut:], targets[cut:]))


@dataclass(frozen=True, slots=True)
class Learnt:
    """Share of the held-out digits that a student read after every `READ_EVERY` steps."""

    accuracies: Sequence[float]

    def steps_to(self, goal: float) -> int:
        """Until so many were first read; `MOST_STEPS` where they never were."""
        reached = (place for place, accuracy in enumerate(self.accuracies, 1) if accuracy >= goal)
        return READ_EVERY * next(reached, MOST_STEPS // READ_EVERY)

    def after(self, num_steps: int) -> float:
        return self.accuracies[num_steps // READ_EVERY - 1]


def trained_teacher(images: Tensor, targets: Tensor) -> nn.Module:
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=RATE)
    for _ in range(150):
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(teacher(images), targets))
        optimizer.step()
    return teacher.eval()


def learnt(
    data: Digits, seed: int, *, distilled: bool, num_steps: int, goal: float = 0.0, num_labelled: int | None = None
) -> Learnt:
    """Train a student of 16 hidden units on the same batches either way, for `num_steps` and until it reads `goal`.

    Of the digits to train on it sees `num_labelled`, drawn by the seed; None: all.
    """
    torch.manual_seed(seed)
    student = nn.Sequential(nn.Linear(64, NUM_HIDDEN), nn.ReLU(), nn.Linear(NUM_HIDDEN, 10))
    optimizer, kd = torch.optim.AdamW(student.parameters(), lr=RATE), StaticKDLoss()
    seen = torch.arange(data.cut)
    if num_labelled is not None:
        seen = torch.randperm(data.cut, generator=torch.Generator().manual_seed(seed))[:num_labelled]
    accuracies: list[float] = []
    for step in range(1, MOST_STEPS + 1):
        batch = seen[torch.randint(0, len(seen), (BATCH,))]
        outputs = student(data.images[batch])
        value = functional.cross_entropy(outputs, data.targets[batch])
        if distilled:
            value = value + kd(outputs, data.logits[batch])
        optimizer.zero_grad()
        torch.autograd.backward(value)
        optimizer.step()
        if step % READ_EVERY == 0:
            accuracies.append(_held_out(student, data))
            if step >= num_steps and max(accuracies) >= goal:
                break
    return Learnt(accuracies)


def _held_out(student: nn.Module, data: Digits) -> float:
    return read(student, data.images[data.cut :], data.targets[data.cut :])


@torch.no_grad()
def read(student: nn.Module, images: Tensor, targets: Tensor) -> float:
    return float((student(images).argmax(-1) == targets).float().mean())
