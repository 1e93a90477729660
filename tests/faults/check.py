"""Judges histories: what was acknowledged took effect, once. Imports nothing of the runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path

from tests.faults.history import Record, records

SHOWN = 5


def exactly_once(published: Iterable[str], acknowledged: Iterable[str], applied: Iterable[str]) -> Iterator[str]:
    """What of it does not hold: every id acknowledged was applied, none twice, none that was not published.

    An id that was published and never acknowledged may have been applied, once.
    """
    sent, promised, took = set(published), set(acknowledged), Counter(applied)
    yield from told("acknowledged and never applied", promised - took.keys(), len(promised))
    yield from told("applied more than once", {each for each, times in took.items() if times > 1}, len(took))
    yield from told("applied and never published", took.keys() - sent, len(took))
    yield from told("acknowledged and never published", promised - sent, len(promised))


def conserved(published: Iterable[Record], acknowledged: Iterable[Record], counted: Iterable[Record]) -> Iterator[str]:
    """What of it does not hold: all packets acknowledged are counted, with the sum of their values; none but them.

    Where a frame was never acknowledged, it may be counted or not. Aggregates are numbered from 1 without a gap.
    """
    frames = {record["frame"]: record for record in acknowledged}
    doubtful = {record["frame"]: record for record in published if record["frame"] not in frames}
    totals = list(counted)
    numbers = [record["sequence"] for record in totals]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"aggregates are numbered {numbers[:SHOWN]}..{numbers[-1:]}, {len(numbers)} of them"
    for figure, met in (("packets", "packets"), ("sum", "sum"), ("packets", "values")):
        sure = sum(record[figure] for record in frames.values())
        perhaps = sum(record[figure] for record in doubtful.values())
        found = sum(record[met] for record in totals)
        if not sure <= found <= sure + perhaps:
            yield f"{met} counted: {found}; acknowledged {sure}, and {perhaps} in doubt"


def in_order(seen_as: Iterable[str]) -> Iterator[str]:
    """What of it does not hold: entry ids of one stream go up, so that no entry was written down twice."""
    last = (-1, -1)
    for entry_id in seen_as:
        milliseconds, _, count = entry_id.partition("-")
        at = int(milliseconds), int(count)
        if at <= last:
            yield f"entry {entry_id} was seen after {last[0]}-{last[1]}"
        last = at


def judge(directory: Path, held: Iterable[Record] | None = None) -> Iterator[str]:
    """Every promise that the histories of publishers and of the witness show broken.

    `held`: what stands in Redis in the end, in the place of what the witness saw; of a Redis that falls back.
    """
    said = {what: [] for what in ("published", "acknowledged", "applied", "counted")}  # type: dict[str, list[Record]]
    seen = records(directory) if held is None else chain(published_by(directory), held)
    for record in seen:
        if record["what"] in said:
            said[record["what"]].append(record)
    published, acknowledged, applied, counted = said.values()
    yield from exactly_once(ids(published), ids(acknowledged), ids(applied))
    yield from conserved(framed(published), framed(acknowledged), counted)
    yield from in_order(record["seen_as"] for record in applied)


def published_by(directory: Path) -> Iterator[Record]:
    return (record for record in records(directory) if record["what"] in ("published", "acknowledged"))


def ids(told: Iterable[Record]) -> Iterator[str]:
    return (record["id"] for record in told if "id" in record)


def framed(told: Iterable[Record]) -> Iterator[Record]:
    return (record for record in told if "frame" in record)


def told(what: str, found: Collection[str], of: int) -> Iterator[str]:
    if found:
        yield f"{len(found)} of {of} {what}: {', '.join(sorted(found)[:SHOWN])}"
