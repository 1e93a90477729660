"""The garbage collector around what is measured."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settled_collector() -> Iterator[None]:
    """The collector stays on, as it is in use. What set-up left is collected first; the rest of it is frozen, so that
    it is not looked at again until the block ends."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
