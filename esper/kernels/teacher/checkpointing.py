"""Gradient checkpointing of a teacher's trunk, for where gradients flow through it; elsewhere it saves nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from esper.kernels.teacher.layout import trunk


class Segments:
    """Runs a model's trunk in segments whose activations are computed again in the backward.

    A trunk that is an nn.Sequential is cut into `num` segments of about equally many children; the blocks of an
    nn.ModuleList are a segment each; a model without a trunk is one segment. Counts what was computed again.
    """

    def __init__(self, model: nn.Module, num: int) -> None:
        self.model, self.num = model, num
        self.recomputation_count = 0
        self._trunk = trunk(model)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output; its backward runs each segment once more."""
        if self._trunk is None:
            return Segment(self.model, self)(*args, **kwargs)
        blocks = list(self._trunk)
        inner = blocks if isinstance(self._trunk, nn.ModuleList) else _split(blocks, self.num)
        with _standing_in(self._trunk, [Segment(each, self) for each in inner]):
            return self.model(*args, **kwargs)


class Segment(nn.Module):
    """Stands in for a block during one forward, and looks like it to whoever asks for its attributes."""

    def __init__(self, inner: nn.Module, counts: Segments) -> None:
        super().__init__()
        self.inner = inner
        self.training = inner.training
        self.__dict__["counts"] = counts

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # As a call, also in the backward: hooks of the block are what brings its weights.
        runs, counts, inner = 0, self.counts, self.inner

        def counted(*given: Any, **named: Any) -> Any:
            nonlocal runs
            runs += 1
            counts.recomputation_count += runs > 1
            return inner(*given, **named)

        # Frozen and in eval: nothing is drawn, so that no generator need be kept.
        return checkpoint(counted, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


def _split(blocks: Sequence[nn.Module], num: int) -> list[nn.Module]:
    num = min(num, len(blocks))
    cuts = [round(at * len(blocks) / num) for at in range(num + 1)]
    return [nn.Sequential(*blocks[start:end]).eval() for start, end in pairwise(cuts)]


@contextmanager
def _standing_in(container: nn.Module, modules: Sequence[nn.Module]) -> Iterator[None]:
    """The container's own hooks and loop run; only what it holds is another."""
    real = container._modules
    container._modules = {str(at): module for at, module in enumerate(modules)}
    try:
        yield
    finally:
        container._modules = real
