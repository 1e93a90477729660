"""What the processes of a run have refused, by stream and reason, from what each of them has counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from esper.bus.names import RUN_KEY
from esper.bus.upkeep.counters import Count

REFUSED, REPEATED = "esper_messages_refused_total", "esper_messages_deduplicated_total"
REDELIVERED = "esper_entries_redelivered_total"
LOGS = ("commands", "optimizer", "decisions", "emergency")
"""Streams of which every process that reads them counts for itself."""


def tallied(stream: str, said: Iterable[Iterable[Count]]) -> Counter[str]:
    """Of one stream: how many were refused for each reason, and under REPEATED how many left out as met before.

    What every process reads, each of them refuses: the one that has counted most of a reason tells. What one of them
    reads for all, they have counted together.
    """
    told = Counter[str]()
    for counts in said:
        mine = Counter[str]()
        for count in filter(lambda count: math.isfinite(count.value), counts):  # anybody may have written them
            if named(count.labels.get("stream", "")) == stream and count.name in (REFUSED, REPEATED):
                mine[count.labels.get("reason", "") if count.name == REFUSED else REPEATED] += int(count.value)
        told = told | mine if stream in LOGS else told + mine
    return told


def redelivered(stream: str, group: str, said: Iterable[Iterable[Count]]) -> int:
    """How many entries of a stream its group was handed over again, by all processes that read for it."""
    found = [
        count.value
        for counts in said
        for count in counts
        if (count.name, count.labels.get("group")) == (REDELIVERED, group)
        and named(count.labels.get("stream", "")) == stream
    ]
    return sum(map(int, filter(math.isfinite, found)))


def refused(said: Iterable[Iterable[Count]]) -> dict[str, Counter[str]]:
    """Of every stream that anything was refused of: how many for each reason."""
    counts = [list(each) for each in said]
    streams = {named(one.labels.get("stream", "")) for each in counts for one in each if one.name == REFUSED}
    told = {stream: tallied(stream, counts) for stream in sorted(streams)}
    return {stream: Counter({k: n for k, n in reasons.items() if k != REPEATED}) for stream, reasons in told.items()}


def named(stream: str) -> str:
    """A stream's name from its key, behind its region where it has one."""
    found = RUN_KEY.fullmatch(stream)
    return "/".join(filter(None, (found["region"], found["name"]))) if found else stream
