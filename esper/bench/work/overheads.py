"""A model's forward and its training step, alone and with four slots in it."""

from __future__ import annotations

import hashlib
from itertools import count

from torch import Tensor

from esper.bench.arm import Ready
from esper.bench.work.grown import grow
from esper.bench.work.hosts import SMALL, Bare
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.leyline.lifecycle import BLENDING, DORMANT, TRAINING

STAGES = {"dormant": DORMANT, "training": TRAINING, "blending": BLENDING}


class Slotted:
    """The model with an executor, which is told of each step; its seeds have not learned, so that delta is 0."""

    def __init__(self, stage: str) -> None:
        self.bare = Bare(SMALL)
        self.executor = Executor(self.bare.host, SMALL.sites, run_id="bench", settings=KasminaConfig())
        self.bare.loss()  # every site is seen
        for site in self.executor.sites if stage != "dormant" else ():
            grow(self.executor, site, STAGES[stage])
        self._steps = count(1)

    def forward(self) -> Tensor:
        self.executor.begin_step(next(self._steps), 0)
        return self.bare.loss()

    def step(self) -> Tensor:
        self.executor.begin_step(next(self._steps), 0)
        return self.bare.step()


def forward_alone() -> Ready:
    bare = Bare(SMALL)
    return Ready(bare.loss, answer=lambda: output(bare))


def forward_slotted(stage: str) -> Ready:
    slotted = Slotted(stage)
    return Ready(slotted.forward, answer=lambda: output(slotted.bare))


def step_alone() -> Ready:
    """Asked for its weights after the one step that both have made."""
    bare = Bare(SMALL)
    return Ready(bare.step, answer=lambda: weights(bare))


def step_slotted(stage: str) -> Ready:
    slotted = Slotted(stage)
    return Ready(slotted.step, answer=lambda: weights(slotted.bare))


def output(bare: Bare) -> bytes:
    """Of the model, bit for bit."""
    return digest([bare.host(bare.inputs)])


def weights(bare: Bare) -> bytes:
    """Of the host after whatever was done to it, bit for bit."""
    return digest(list(bare.host.state_dict().values()))


def digest(tensors: list[Tensor]) -> bytes:
    """sha256 over their bytes."""
    hashed = hashlib.sha256()
    for tensor in tensors:
        hashed.update(tensor.detach().contiguous().numpy().tobytes())
    return hashed.digest()
