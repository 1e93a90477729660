"""A model's forward and its training step, alone and with four slots in it."""

from __future__ import annotations

import hashlib
from functools import cache
from itertools import count

from torch import Tensor

from esper.bench.arm import Ready
from esper.bench.work.hosts import SMALL, Bare
from esper.bench.work.seeds.grown import grow, learned, with_all
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.leyline.lifecycle import BLENDING, DORMANT, TRAINING

STAGES = {"dormant": DORMANT, "training": TRAINING, "blending": BLENDING}


class Slotted:
    """The model with an executor, which is told of each step. Seeds that train are learned ones: the host must not see
    what they come to. Those that blend are new, so that the sum is the host's output."""

    def __init__(self, stage: str) -> None:
        self.bare = Bare(SMALL)
        self.executor = Executor(self.bare.host, SMALL.sites, run_id="bench", settings=KasminaConfig())
        self.bare.loss()  # every site is seen
        self.seeds = [grow(self.executor, site, STAGES[stage]) for site in self.executor.sites if stage != "dormant"]
        self._steps = count(1)
        if stage == "training":
            self.learn()

    def learn(self) -> None:
        for seed in self.seeds:
            if seed.module is not None:
                learned(seed.module)

    def forward(self) -> Tensor:
        self.executor.begin_step(next(self._steps), 0)
        return self.bare.loss()

    def step(self) -> Tensor:
        self.executor.begin_step(next(self._steps), 0)
        return self.bare.step()

    def output(self) -> bytes:
        """RuntimeError where a seed does not run."""
        return digest([with_all(self.seeds, lambda: self.bare.host(self.bare.inputs))])

    def blended(self) -> bytes:
        """The same; RuntimeError where what the seeds learn would not reach it either."""
        new = self.output()
        self.learn()
        if self.output() == new:
            raise RuntimeError("the model's output is the same with seeds that add something")
        return new


def forward_alone() -> Ready:
    bare = Bare(SMALL)
    return Ready(bare.loss, answer=lambda: output(bare))


def forward_slotted(stage: str) -> Ready:
    slotted = Slotted(stage)
    return Ready(slotted.forward, answer=cache(slotted.blended) if stage == "blending" else slotted.output)


def step_alone() -> Ready:
    """Asked for its weights after the one step that both have made."""
    bare = Bare(SMALL)
    return Ready(bare.step, answer=lambda: weights(bare))


def step_slotted(stage: str) -> Ready:
    """RuntimeError where a seed of it got no gradient by that step."""
    slotted = Slotted(stage)

    def answer() -> bytes:
        for seed in slotted.seeds:
            if any(parameter.grad is None for _, parameter in seed.trainable()):
                raise RuntimeError(f"seed {seed.seed_id} got no gradient")
        return weights(slotted.bare)

    return Ready(slotted.step, answer=answer)


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
        hashed.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return hashed.digest()
