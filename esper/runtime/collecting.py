"""How often the garbage of a process is collected."""

from __future__ import annotations

import gc

YOUNG = 20_000
"""So many objects more than before, and the young ones are walked: twice an aggregator's full hand. At the
interpreter's own 700, tier 1 walked 155 times in 20,000 packets, a tenth of its time, and found nothing."""


def collect_seldom() -> None:
    """To be called once all is imported. What is there by now is never looked at again; cycles are still found."""
    gc.collect()
    gc.freeze()
    _, *older = gc.get_threshold()
    gc.set_threshold(YOUNG, *older)
