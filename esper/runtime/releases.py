"""Which releases of Esper have trained what a log tells of, and whether that is this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from esper.errors import listed
from esper.leyline import contracts as pb
from esper.runtime.logbook import Read, messages
from esper.version import running

UNTOLD = "one of before 2026-11-23, which does not say"


def other_release(reads: Mapping[str, Sequence[Read]]) -> str:
    """One sentence that names those that are not this one; empty where there are none.

    Each trainer that began says its own: a run may have been resumed by another.
    """
    records = [opened.message for opened in messages(reads["receipts"])]
    began = [each.began for each in records if isinstance(each, pb.RunRecord) and each.HasField("began")]
    found = dict.fromkeys(each.esper_version or UNTOLD for each in began)
    others = [release for release in found if release != running()]
    if not others:
        return ""
    return f"trained by {listed(others)}; this is {running()}: a replay may come to other parameters"
