"""Which releases of Esper have trained what a log tells of, and whether that is this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from esper.errors import listed
from esper.leyline import contracts as pb
from esper.runtime.logbook import Read, messages
from esper.version import running

UNTOLD = "one of before 2026-11-23, which does not say"


def other_release(reads: Mapping[str, Sequence[Read]]) -> str:
    """One sentence that names those that are not this one; empty where there are none, or nobody says that it began.

    Each trainer that began says its own: a run may have been resumed by another. What a trainer did is lost once
    another one has begun anew in its place.
    """
    lived: dict[str, list[pb.RunBegan]] = {}
    for opened in messages(reads["receipts"]):
        if isinstance(record := opened.message, pb.RunRecord) and record.HasField("began"):
            lived[record.worker] = [*(lived.get(record.worker, []) if record.began.resumed else []), record.began]
    found = dict.fromkeys(began.esper_version or UNTOLD for each in lived.values() for began in each)
    others = [release for release in found if release != running()]
    if not others:
        return ""
    return f"trained by {listed(others)}; this is {running()}: a replay may come to other parameters"
