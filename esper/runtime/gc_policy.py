"""How often the garbage of a process is collected."""

from __future__ import annotations

import atexit
import gc
import sys
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


OPTIONAL = ("rich", "opentelemetry")
"""What structlog and redis load where it is installed, and a process that only carries messages has no use for: frames
around tracebacks, and spans that nobody collects. Together a fifth of what such a process takes to start."""


@contextmanager
def loading(*without: str) -> Iterator[None]:
    """Around imports: what they make stays, and is not walked for garbage meanwhile, a fifth of the time of torch's.

    `without` are packages that whoever can do without them finds missing meanwhile. For processes of our own alone:
    a library that was loaded so does without them for good.
    """
    was_enabled, missing = gc.isenabled(), {name for name in without if name not in sys.modules}
    gc.disable()
    sys.modules.update(dict.fromkeys(missing))  # type: ignore[arg-type]  # None: what is looked for is not there
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
        if was_enabled:
            gc.enable()


def end_soon() -> None:
    """Have the interpreter end without a walk through all that is there by then: with torch, a second on a slow core.

    What is in a cycle is not told of the end, which nobody is promised: whoever writes closes what he has opened.
    """
    atexit.unregister(_leave_all)
    atexit.register(_leave_all)


def _leave_all() -> None:
    if "triton" not in sys.modules:  # its newer releases print a page of leaks on stderr for whatever is left
        gc.freeze()
