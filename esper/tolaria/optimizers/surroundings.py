"""What the optimizers are told of the training around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.optim.lr_scheduler import LRScheduler

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.owners import Named, Source


def _no_teacher(digest: str, step: int) -> str:
    raise RefusedError(
        pb.ReasonCode.REASON_NOT_SUPPORTED, f"no teacher can be registered here ({digest or 'no digest'})"
    )


def _no_parameters() -> Named:
    return ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All of it may be left out: then names are those of the host's groups, and the host steps by itself."""

    model: Source | None = None  # the model's named parameters, as they are now
    teacher: Source = _no_parameters
    sparse: Source = _no_parameters  # of the model's those whose gradients are
    register_teacher: Callable[[str, int], str] = _no_teacher  # (digest, step) -> a sentence, empty: undecided yet
    clips: Callable[[], Mapping[str, float]] = dict  # gradient norms that seeds are clipped to at this step, by id
    announce: Callable[[Sequence[torch.nn.Parameter]], None] = lambda parameters: None  # what joined the host
    schedulers: Sequence[LRScheduler] = ()  # of the host's optimizer
    own_host: bool = False  # leases govern the host's own steps too


ALONE = Surroundings()
