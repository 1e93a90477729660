"""Loaders that draw as they go, in a process that is killed and in one that goes on from its checkpoint."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from esper.session import Session
from tests.checkpoint_kit import keyring
from tests.seed_kit import new_host
from tests.session_kit import UNSTEERED, joined, train

NUM, PER_EPOCH, LAST = 24, 6, 20  # examples, steps; checkpoints are made before each step of an odd number
Make = Callable[[int], Iterable[Any]]
Met = dict[int, list[float]]


class Numbers(Dataset[Tensor]):
    """As many numbers; with noise of every generator that an augmentation may draw from."""

    def __init__(self, *, noise: bool = False) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, at: int) -> Tensor:
        drawn = torch.rand(()).item() + random.random() + np.random.random() if self.noise else 0.0
        return torch.tensor(at + drawn)


def shuffled(**how: Any) -> Make:
    loader = DataLoader(Numbers(noise=how.pop("noise", False)), batch_size=NUM // PER_EPOCH, shuffle=True, **how)
    return lambda epoch: loader


def seeded(seed: int) -> None:
    """As the first line of a script, which gives another process other numbers where it is not there."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def met(run: Session, make: Make, last: int = LAST, num: int = 1) -> Iterator[tuple[int, list[float]]]:
    """Each step with its batches; `num` of them are taken before it begins."""
    host = run.status.model
    while run.step_number <= last:
        batches = iter(run.batches(make))
        for first in batches:
            taken = [first, *(next(batches) for _ in range(num - 1))]
            yield run.step_number, torch.cat(taken).tolist()
            train(run, host, 1)
            torch.rand(3), random.random(), np.random.random(5)  # as dropout does
            if run.step_number > last:
                return
        run.epoch_end()


def begun(folder: Path, *, resume: bool = False) -> Session:
    folder.mkdir(exist_ok=True)
    if not resume:
        keyring(UNSTEERED).save(folder / "keyring.json")
    with torch.random.fork_rng():
        host = new_host()
    return joined(folder / "checkpoints", folder / "keyring.json", host, resume=resume)


def lives(folder: Path, make: Callable[[], Make], at: int, num: int = 1) -> tuple[Met, Met, Session]:
    """What a process met, and another one that goes on from the newest checkpoint of one that was killed in a step."""
    seeded(0)
    whole = dict(met(begun(folder / "whole"), make(), num=num))
    seeded(0)
    killed = begun(folder / "killed")
    dict(met(killed, make(), last=at, num=num))
    killed.abandon()
    seeded(99)
    again = begun(folder / "killed", resume=True)
    return whole, dict(met(again, make(), num=num)), again
