"""The newest step that all ranks have, agreed on with nothing but means over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def newest_common(steps: Sequence[int], good: Callable[[int], bool], mean: Callable[[float], float]) -> int | None:
    """The newest of `steps` (sorted, newest first) that is good on every rank; None on all of them where there is none.

    Every rank offers the newest that it has not gone below; who offers more than the mean goes down to it. No rank
    goes below the newest common one, as that lies in its list and not above the mean.
    """
    offered = _next(steps, good, float("inf"))
    while True:
        level = mean(float(offered))
        agreed = mean(float(abs(offered - level) < 0.5 and offered > 0))
        if agreed > 1.0 - 1e-6:
            return offered
        if mean(float(offered == 0)) > 0.0:
            return None
        if offered > level:
            offered = _next(steps, good, level)


def _next(steps: Sequence[int], good: Callable[[int], bool], level: float) -> int:
    """0 where there is none: steps count from 1."""
    return next((step for step in steps if step <= level and good(step)), 0)
