"""Distillation into one seed: its own output is drawn to a teacher's logits, and nothing else learns from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from esper.errors import SettingError
from esper.kasmina.isolation.foreign_code import delta_of
from esper.kasmina.seeds.seed import Seed
from esper.kasmina.slots.naming import found
from esper.kasmina.slots.outputs import joinable
from esper.kernels.distillation import StaticKDLoss


class LearningSeeds(Protocol):
    """What an Executor says of its seeds, and of the step that it is in."""

    @property
    def step(self) -> int: ...
    def learning(self) -> Mapping[str, Seed]: ...


class SeedDistillation:
    """For a site whose output are logits: the KD loss of h + delta(x, h), whatever the seed's alpha is.

    x and h are copies without a graph, so that the gradient reaches the seed's parameters alone, in every stage; it
    adds to what the seed learns by its stage. Costs another forward of the seed. Of a site that is called several times
    in a forward the last call counts; below a reentrant checkpoint, whose forward is one without gradients, none does.
    Nor does a call in an earlier step, as when another model's loss goes back through this one.
    """

    def __init__(self, host: nn.Module, seeds: LearningSeeds, site: str, loss: StaticKDLoss | None = None) -> None:
        """Make it after attach(), with `run.executor` as `seeds`; SettingError for a site that doesn't exist."""
        self.seeds, self.site, self.kd_loss = seeds, site, loss or StaticKDLoss()
        self._seen: tuple[int, Tensor, Tensor] | None = None  # with the step
        # Before the slot's own hook: what it sees is the host's value.
        self._handle: RemovableHandle = found(host, site).register_forward_hook(
            _Look(self), prepend=True, with_kwargs=True
        )

    def loss(self, teacher_logits: Tensor | None, targets: Tensor | None = None) -> Tensor:
        """To be added to the host's loss before its backward; 0 where no seed learns here, no teacher is, or no
        forward was in this step.

        Positions where the seed's output or the teacher's is not finite count nothing; SettingError where shapes
        differ.
        """
        seed, seen = self._seed(), self._seen
        self._seen = None
        if seed is None or seed.module is None or seen is None or teacher_logits is None:
            return torch.zeros(())
        step, x, h = seen
        if step != self.seeds.step:
            return torch.zeros((), device=h.device)
        versions = x._version, h._version
        delta = delta_of(seed.module, x, h)
        writes = (x._version, h._version) != versions  # then the script's own backward may raise
        if writes or not isinstance(delta, Tensor) or delta.shape != h.shape:
            return torch.zeros((), device=h.device)  # the slot has met the same, and asks for a cull
        if h.shape != teacher_logits.shape:
            raise SettingError("shape of teacher_logits", tuple(teacher_logits.shape), f"the site's, {tuple(h.shape)}")
        student = h + delta.to(h.dtype)
        dim = self.kd_loss.dim
        sound = torch.isfinite(student).all(dim) & torch.isfinite(teacher_logits.amax(dim))  # -inf rules a class out
        value: Tensor = self.kd_loss(student, teacher_logits, targets, mask=sound)
        return value

    def close(self) -> None:
        """Take the hook away."""
        self._handle.remove()

    def _seed(self) -> Seed | None:
        return next((seed for seed in self.seeds.learning().values() if seed.site == self.site), None)

    def look(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """What the site was given in the newest forward, and what it gave.

        In a backward, which computes again what checkpointing has not kept, it is the batch of a loss that is over.
        """
        if not torch.is_grad_enabled() or self._seed() is None:
            return
        if torch._C._current_graph_task_id() >= 0:  # asked for last: a compiled graph breaks here, as at any seed
            return
        self._keep((*args, *kwargs.values()), output)

    @torch._dynamo.disable  # type: ignore[untyped-decorator]  # another step would be another graph
    def _keep(self, given: tuple[Any, ...], output: Any) -> None:
        x = next((each for each in given if isinstance(each, Tensor)), None)
        at = joinable(output)
        if at is not None:
            h = at[1].detach().clone()  # the host may change its own in place
            self._seen = (self.seeds.step, h if x is None else x.detach().clone(), h)


class _Look:
    """The hook, which a copy of the model does without: an average, or what torch.save() writes."""

    def __init__(self, distillation: SeedDistillation | None = None) -> None:
        self.distillation = distillation

    def __reduce__(self) -> tuple[type[_Look], tuple[()]]:
        return _Look, ()

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        if self.distillation is not None:
            self.distillation.look(args, kwargs, output)
