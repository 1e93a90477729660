"""One pass over an epoch's batches, such that a process that resumes within it meets the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import torch

from esper.kasmina.slots.outputs import tensors_in
from esper.tolaria.state.digest import parameter_digest
from esper.tolaria.state.randomness import Randomness

T = TypeVar("T")
BEGAN, BEFORE, NUM, NEWEST = "began", "before", "num", "newest"

Make = Callable[[], Iterable[T]]
DueStep = Callable[[], int]
"""The step that takes the next batch, where a checkpoint is due before it; else 0."""


class Stream:
    """What random generators held when it began: a loader that shuffles draws its order from them.

    And what they held before the batch of a step at whose beginning a checkpoint is made: one that augments in this
    process draws from them, too. Knows its own batches, neither epochs nor checkpoints.
    """

    def __init__(self, now: Randomness, kept: Mapping[str, Any] | None = None) -> None:
        """`now`: what generators hold; `kept`: the state of the stream that goes on here, in another process."""
        self._now, self._kept = now, kept
        self._began = now if kept is None else Randomness(**kept[BEGAN])
        self._before: Randomness | None = None
        self._newest, self._at = "", 0
        self.num = 0  # batches of the epoch that it has handed out
        self.has_parted = False  # the batch at the checkpoint was another one before this process resumed

    def state_dict(self) -> dict[str, Any]:
        before = None if self._before is None else self._before.as_data()
        return {BEGAN: self._began.as_data(), BEFORE: before, NUM: self.num, NEWEST: self._newest}

    def batches(self, make: Make[T], num: int, due: DueStep) -> Iterator[T]:
        """Those behind the first `num`."""
        self.num = num
        made = islice(make(), num, None) if self._kept is None else self._again(make, num, self._kept)
        while True:
            if (step := due()) != self._at:  # of its first batch, where it takes several
                self._before, self._newest, self._at = Randomness.now() if step else None, "", step
            try:
                batch = next(made)
            except StopIteration:
                return
            self.num += 1
            if step:
                self._newest = fingerprint(batch)
            yield batch

    def _again(self, make: Make[T], num: int, kept: Mapping[str, Any]) -> Iterator[T]:
        """What was made before the checkpoint is made of what generators held then; the rest of what they hold now."""
        num_made = max(int(kept[NUM]), num)
        self._began.put_back()
        made = iter(make())
        for _ in islice(made, num):
            pass
        if num < num_made and kept[BEFORE] is not None:
            Randomness(**kept[BEFORE]).put_back()
        behind = list(islice(made, num_made - num))
        self._now.put_back()
        self.has_parted = bool(behind and kept[NEWEST]) and fingerprint(behind[-1]) != kept[NEWEST]
        yield from behind
        yield from made


def fingerprint(batch: object) -> str:
    """Of the tensors in it; empty where there is none."""
    tensors = [each for each in tensors_in(batch) if each.layout is torch.strided and not each.is_nested]
    named = ((str(number), each) for number, each in enumerate(tensors))
    return parameter_digest(named).hex() if tensors else ""
