"""Which releases of Esper have trained what a log tells of, and whether that is this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from esper.errors import listed
from esper.runtime.history.logbook import Read
from esper.runtime.history.retrace import lives
from esper.version import running

UNTOLD = "one of before 2026-11-23, which does not say"


def other_release(reads: Mapping[str, Sequence[Read]]) -> str:
    """One sentence that names those that are not this one; empty where there are none, or nobody says that it began.

    Each trainer that began says its own: a run may have been resumed by another.
    """
    found = dict.fromkeys(life.began.esper_version or UNTOLD for lived in lives(reads).values() for life in lived)
    others = [release for release in found if release != running()]
    if not others:
        return ""
    return f"trained by {listed(others)}; this is {running()}: a replay may come to other parameters"
