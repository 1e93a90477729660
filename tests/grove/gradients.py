"""What each rank computed of a gradient by itself, beside the one that its optimizers were given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esper.kernels.split import is_split
from esper.session import Session
from esper.tolaria.reduce import Trainee
from tests.garden.wrong import require
from tests.grove.script import Script

Seen = dict[str, tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]]
"""By parameter: the sum of what backward passes gave here, and what its optimizer is given; None: nothing was."""
CLOSE = 2e-5  # of the largest element; they are sums in float32


class Ledger:
    """Of one step of one rank."""

    def __init__(self, script: Script, run: Session) -> None:
        """From the moment on at which the step's orders are carried out."""
        self._script, self._run, self._local = script, run, dict[str, Tensor]()
        self._given: dict[str, Tensor | None] = {}
        self._named = dict(self._all())
        self._hooks = [self._follow(name, each) for name, each in self._named.items() if each.requires_grad]
        self._reduce = run.optimizers._reducer.reduce
        run.optimizers._reducer.reduce = self._reduced  # type: ignore[method-assign]
        script.averaged = self._averaged

    def _all(self) -> Iterator[tuple[str, Tensor]]:
        yield from ((name, each) for name, each in self._script.host.named_parameters() if not is_split(each))
        for seed_id, seed in self._run.executor.seeds.items():
            yield from ((f"seed {seed_id} {name}", each) for name, each in seed.trainable())

    def _follow(self, name: str, parameter: Tensor) -> torch.utils.hooks.RemovableHandle:
        def add(gradient: Tensor) -> None:
            before = self._local.get(name)
            self._local[name] = gradient.detach().double() if before is None else before + gradient.detach().double()

        return parameter.register_hook(add)  # type: ignore[no-any-return, no-untyped-call]

    def _averaged(self) -> None:
        """The host's, fossils with them, as clipping finds them."""
        stepped = {id(each) for each in self._script.parameters()}
        for name, each in self._named.items():
            if id(each) in stepped:
                self._given[name] = None if each.grad is None else each.grad.detach().double().clone()

    def _reduced(self, seeds: Mapping[str, Trainee]) -> None:
        """As their own optimizers find them."""
        self._reduce(seeds)
        scale = 1.0 if self._script.scaler is None else self._script.scaler.get_scale()
        for seed_id, seed in seeds.items():
            for name, each in seed.trainable():
                found = None if each.grad is None else scale * each.grad.detach().double()
                self._given[f"seed {seed_id} {name}"] = found

    def close(self) -> Seen:
        """What was found; nothing stays."""
        for hook in self._hooks:
            hook.remove()
        del self._run.optimizers._reducer.reduce
        self._script.averaged = lambda: None
        return {name: (_numbers(self._local.get(name)), _numbers(given)) for name, given in self._given.items()}


def _numbers(tensor: Tensor | None) -> NDArray[np.float64] | None:
    return None if tensor is None else tensor.numpy()


def compare(ranks: Sequence[Seen]) -> None:
    """Each gradient is the mean over ranks of what each of them computed, and the same on all."""
    for other in ranks[1:]:
        require(ranks[0].keys() == other.keys(), f"one rank steps {sorted(ranks[0].keys() ^ other.keys())} alone")
    for name, (_, given) in ranks[0].items():
        local = [mine for mine, _ in (each[name] for each in ranks) if mine is not None]
        for _, other_given in (each[name] for each in ranks[1:]):
            require((given is None) == (other_given is None), f"{name} has a gradient on one rank alone")
            if given is not None and other_given is not None:
                require(np.array_equal(given, other_given, equal_nan=True), f"{name} has two gradients")
        if given is None:
            require(not local, f"{name} was given no gradient, though there is one")
            continue
        mean = sum(local) / len(ranks) + np.zeros_like(given)
        if np.isfinite(mean).all() and mean.size:
            off = float(np.abs(mean - given).max()) / max(float(np.abs(mean).max()), 1e-6)
            require(off < CLOSE, f"the gradient of {name} is off by {off:.2g} from the mean over ranks")
