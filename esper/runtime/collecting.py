"""How often the garbage of a process is collected."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 20_000
"""So many objects more than before, and the young ones are walked: twice an aggregator's full hand. At the
interpreter's own 700, tier 1 walked 155 times in 20,000 packets, a tenth of its time, and found nothing."""


def collect_seldom() -> None:
    """To be called once all is imported. What is there by now is never looked at again; cycles are still found."""
    gc.collect()
    gc.freeze()
    _, *older = gc.get_threshold()
    gc.set_threshold(YOUNG, *older)


@contextmanager
def loading() -> Iterator[None]:
    """Around imports: what they make stays, and is not walked for garbage meanwhile, a fifth of the time of torch's."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def end_soon() -> None:
    """Have the interpreter end without a walk through all that is there by then: with torch, a second on a slow core.

    What is in a cycle is not told of the end, which nobody is promised: whoever writes closes what he has opened.
    """
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
