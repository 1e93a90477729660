"""Whether a step of an optimizer is part of another step of the same one."""

from __future__ import annotations

import inspect

import torch

_HOOKED = torch.optim.Optimizer.profile_hook_step(lambda: None).__code__
"""What torch puts around the `step` of each class that it has made an instance of; it calls the hooks."""


def is_nested(optimizer: torch.optim.Optimizer) -> bool:
    """Asked by a hook: whether it is called for what is only a part of the step, which calls the hook, too.

    So it is where the `step` of a subclass calls that of its parent, of which an instance was made in this process:
    both have the hooks. Read off the stack, as torch calls no hook behind a step that raised, at which a count of those
    begun could be set back.
    """
    if torch.compiler.is_compiling():  # a graph has no stack: a step that is compiled whole is taken for one
        return False
    frame, num_steps = inspect.currentframe(), 0
    while frame is not None and num_steps < 2:
        num_steps += frame.f_code is _HOOKED and frame.f_locals["self"] is optimizer
        frame = frame.f_back
    return num_steps == 2
