"""A teacher that is loaded beside the training changes nothing of a step under way."""

from __future__ import annotations

import torch
from torch.nn.functional import linear

from esper.tolaria.teachers.arrivals import Arrival, Relay


def test_a_teacher_that_is_tried_beside_a_step_leaves_the_step_its_casts() -> None:
    """256 and 1 are 256 in bfloat16, where one cast takes both gradients, and 257 in the sum of two casts."""
    weight = torch.nn.Parameter(torch.ones(1, 1))

    def tried() -> None:
        with torch.autocast("cpu", enabled=False):
            pass

    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = linear(torch.full((1, 1), 256.0), weight)
        Arrival.begin("d", Relay(), tried).wait()
        second = linear(torch.ones(1, 1), weight)
    (gradient,) = torch.autograd.grad((first + second).sum(), weight)

    assert gradient.item() == 256
