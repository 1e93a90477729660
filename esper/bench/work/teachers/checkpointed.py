"""A forward and a backward with activations kept, and with them computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from esper.bench.arm import Ready
from esper.bench.work.teachers.models import LARGE_TEACHER, TEST_TEACHER, blocks, mlp
from esper.bench.work.teachers.modes import batch_of, listed
from esper.kernels.teacher.checkpointing import Segments
from esper.kernels.teacher.teacher import CheckpointedTeacher

Way = Literal["plain", "checkpointed", "by hand"]
SEGMENTS = 4  # of the documents


def trained(way: Way, batch: int) -> Ready:
    """The documents' test teacher, its weights learning, as their validation times it."""
    model, inputs = mlp(TEST_TEACHER).train(), batch_of(TEST_TEACHER, batch)
    parameters = list(model.parameters())
    checkpointed, alone = Segments(model, SEGMENTS).run, partial(by_hand, cut(model))
    ways: dict[Way, Callable[[Tensor], Tensor]] = {"plain": model, "checkpointed": checkpointed, "by hand": alone}
    forward = ways[way]

    def gradients() -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(inputs).mean(), parameters)

    return Ready(gradients, lambda: [listed(each) for each in gradients()])


def cut(model: nn.Sequential) -> list[nn.Module]:
    """Into the same segments; torch's own checkpoint_sequential leaves out the last, here four of seven layers."""
    cuts = [round(at * len(model) / SEGMENTS) for at in range(SEGMENTS + 1)]
    return [model[start:end] for start, end in pairwise(cuts)]


def by_hand(segments: Sequence[nn.Module], inputs: Tensor) -> Tensor:
    """By torch's own checkpoint, as a script would."""
    for segment in segments:
        inputs = checkpoint(segment, inputs, use_reentrant=False, preserve_rng_state=False)
    return inputs


def forward_alone(batch: int) -> Ready:
    """The least that computing activations again adds to it."""
    model, inputs = mlp(TEST_TEACHER).train(), batch_of(TEST_TEACHER, batch)
    return Ready(lambda: model(inputs))


def flowing(way: Way, name: str) -> Ready:
    """A frozen teacher, with a gradient that flows through it to the inputs."""
    teacher, inputs = teacher_named(name)
    inputs.requires_grad_()
    run = way_of(teacher, way)

    def gradient() -> Tensor:
        return torch.autograd.grad(run(inputs).sum(), inputs)[0]

    return Ready(gradient, lambda: listed(gradient()))


def flowing_forward(name: str) -> Ready:
    teacher, inputs = teacher_named(name)
    inputs.requires_grad_()
    return Ready(lambda: teacher.unchecked(inputs))


def way_of(teacher: CheckpointedTeacher, way: Way) -> Callable[[Tensor], Tensor]:
    return teacher.unchecked if way == "plain" else teacher.through


def teacher_named(name: str) -> tuple[CheckpointedTeacher, Tensor]:
    """ "large": the documents', of ReLUs; "blocks": 12 of a transformer, which keep more than they weigh."""
    model: nn.Module = mlp(LARGE_TEACHER) if name == "large" else blocks()
    draw = torch.Generator().manual_seed(1)
    shape = (32, LARGE_TEACHER[0]) if name == "large" else (512, 256)
    return CheckpointedTeacher(model), torch.randn(shape, generator=draw)
