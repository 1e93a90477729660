"""A learning-rate scheduler whose lists follow the parameter groups that come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch.optim.lr_scheduler import LRScheduler

# What torch's schedulers keep per group, in the order of the groups; the rest of it stands in the groups themselves.
PER_GROUP = ("base_lrs", "lr_lambdas", "min_lrs", "max_lrs", "base_momentums", "max_momentums", "_last_lr")


def extend(schedulers: Iterable[LRScheduler], num_groups: int) -> None:
    """Give a group that joined as number `num_groups` what the last one before it has."""
    for held in _lists(schedulers):
        if len(held) == num_groups:
            held.append(held[-1])


def drop(schedulers: Iterable[LRScheduler], number: int) -> None:
    """Forget one group; those behind it move up."""
    once = {id(held): held for held in _lists(schedulers)}  # one that runs others in turn shares a list with them
    for held in once.values():
        del held[number : number + 1]


def _lists(schedulers: Iterable[LRScheduler]) -> Iterator[list[object]]:
    for scheduler in schedulers:
        yield from _lists(getattr(scheduler, "_schedulers", ()))  # of one that runs others in turn, or chained
        for name in PER_GROUP:
            held = getattr(scheduler, name, None)
            if isinstance(held, list):
                yield held
