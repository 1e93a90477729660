"""One optimizer step for all seeds together: guarded, clipped, and batched where seeds share their values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from operator import is_
from typing import Protocol

import torch

from esper.errors import first_line
from esper.tolaria.optimizers import moments
from esper.tolaria.optimizers.kinds import SGD, Kind
from esper.tolaria.optimizers.seed_optimizer import SeedOptimizer


class Measured(Protocol):
    """Gradients of a seed, and their 2-norm."""

    @property
    def gradients(self) -> Sequence[torch.Tensor]: ...
    @property
    def norm(self) -> float: ...


NOTHING_FOUND: Mapping[str, Measured] = {}


@dataclass(frozen=True, slots=True)
class Due:
    """A seed that steps now, if its gradients are finite. Limit 0: they are not clipped. None: nobody knows the norm"""

    seed: SeedOptimizer
    gradients: list[torch.Tensor]
    limit: float
    norm: float | None


@dataclass(frozen=True, slots=True)
class StepFault:
    """A step that a seed did not take: its gradient was not finite, or the optimizer of its kind raised."""

    seed_id: str
    detail: str
    num_in_row: int
    raised: bool

    @classmethod
    def of(cls, seed: SeedOptimizer, detail: str, *, raised: bool) -> StepFault:
        seed.num_in_row += 1
        return cls(seed.optimizer_id, detail, seed.num_in_row, raised)


# What torch and torchao raise where a state is torn, a type has no kernel or memory has run out.
STEP_FAULTS = (RuntimeError, TypeError, ValueError)


class JointStep:
    """Steps many seeds with torch's own code, one batch per kind and set of values, however many seeds share it.

    Between steps it holds no parameter and no state: what is remembered stays in the optimizer of each seed.
    """

    def __init__(self) -> None:
        self._joint: dict[str, torch.optim.Optimizer] = {}

    def step(self, due: Sequence[Due]) -> list[StepFault]:
        """Step those whose gradients are finite, after clipping; the others are returned. Reads the device once.

        Where the step of a kind raises, all seeds of that kind may have been stepped in part.
        """
        faults: list[StepFault] = []
        sound = _clipped(due, faults)
        for kind in {seed.kind.name: seed.kind for seed in sound}.values():
            seeds = [seed for seed in sound if seed.kind is kind]
            try:
                self._step(kind, seeds)
            except STEP_FAULTS as error:
                detail = f"the step of {kind.name} raised {type(error).__name__}: {first_line(error)}"
                faults += [StepFault.of(seed, detail, raised=True) for seed in seeds]
                continue
            for seed in seeds:
                seed.num_taken += 1
                seed.num_in_row = 0
        return faults

    def _step(self, kind: Kind, seeds: Iterable[SeedOptimizer]) -> None:
        joint = self._optimizer(kind)
        batches: dict[tuple[float, ...], tuple[dict[str, float], list[torch.Tensor]]] = {}
        for seed in seeds:
            values = seed.in_force()
            for number, held in enumerate(_apart(seed, values)):
                batches.setdefault((*values.values(), number), (values, []))[1].extend(held)
            seed.lend(joint.state)
        groups = [{**joint.defaults, **kind.group(values), "params": held} for values, held in batches.values()]
        joint.param_groups[:] = groups
        try:
            with torch.compiler.set_stance("force_eager") if kind.eager else nullcontext():
                joint.step()
        finally:
            joint.param_groups.clear()
            joint.state.clear()

    def _optimizer(self, kind: Kind) -> torch.optim.Optimizer:
        if kind.name not in self._joint:
            nothing = torch.nn.Parameter(torch.empty(0, device="cpu"))  # torch makes no optimizer of no parameters
            self._joint[kind.name] = kind.make([nothing], kind.group(kind.defaults))
            self._joint[kind.name].param_groups.clear()
        return self._joint[kind.name]


def _apart(seed: SeedOptimizer, values: Mapping[str, float]) -> Iterable[list[torch.Tensor]]:
    """Its parameters, in one list; a fused SGD's that have no momentum yet in a second.

    torch steps no list in which only some have one.
    """
    if seed.kind is not SGD or not values["fused"]:
        return [seed.parameters]
    begun = [moments.has_momentum(seed.torch, parameter) for parameter in seed.parameters]
    return [[each for each, has in zip(seed.parameters, begun, strict=True) if has == which] for which in (True, False)]


def strictest(limits: Iterable[float]) -> float:
    """The lowest of several clip norms, of which 0 means none."""
    return min((limit for limit in limits if limit), default=0.0)


def norm_of(gradients: Sequence[torch.Tensor], found: Measured | None) -> float | None:
    """The norm that was found, if it is of these very gradients and no others."""
    same = found is not None and len(found.gradients) == len(gradients) and all(map(is_, found.gradients, gradients))
    return found.norm if found is not None and same else None


def _clipped(due: Sequence[Due], faults: list[StepFault]) -> list[SeedOptimizer]:
    """Scale the gradients beyond their limit, as torch's clip_grad_norm_ does, and leave out what is not finite."""
    sound: list[SeedOptimizer] = []
    long: list[torch.Tensor] = []
    factors: list[float] = []
    measured = iter(norms([each.gradients for each in due if each.norm is None]))
    for each in due:
        norm = next(measured) if each.norm is None else each.norm
        if not math.isfinite(norm):  # of reduced gradients, hence judged alike on every rank
            each.seed.num_non_finite += 1
            faults.append(StepFault.of(each.seed, f"its reduced gradient has norm {norm}", raised=False))
            continue
        sound.append(each.seed)
        if each.limit and norm + 1e-6 > each.limit:
            long += each.gradients
            factors += [each.limit / (norm + 1e-6)] * len(each.gradients)
    if long:
        torch._foreach_mul_(long, factors)
    return sound


def norms(gradients: Sequence[Sequence[torch.Tensor]]) -> list[float]:
    """2-norm of each seed's gradient, with one transfer for all; not finite where an element is not, or beyond 1e19."""
    flat = [gradient for own in gradients for gradient in own]
    if not flat:
        return []
    dtype = torch.float64 if any(each.dtype == torch.float64 for each in flat) else torch.float32
    home = flat[0].device
    found = [norm if norm.device == home else norm.to(home) for norm in torch._foreach_norm(flat, 2, dtype)]
    each = iter(torch.stack(found).tolist())
    return [math.hypot(*(next(each) for _ in own)) for own in gradients]
