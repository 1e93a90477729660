"""Calls too short to be timed one by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

NUM_CALLS = 1_000
SHAPE = "a thousand calls a sample, so that 1 ms is 1 us a call"


def thousand(call: Callable[[], object]) -> Callable[[], None]:
    """A thousand calls in a row: a row of them in milliseconds reads as microseconds a call."""

    def calls() -> None:
        for _ in repeat(None, NUM_CALLS):
            call()

    return calls
