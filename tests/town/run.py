"""Towns by the hundred: `python -m tests.town.run FIRST COUNT`. Status 1 where something goes wrong, and how."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import product

import structlog

from esper.errors import EsperError
from tests.town.town import NUM_EVENTS, Town

Make = Callable[..., Town]


def main(first: int, num: int) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    found = defaultdict[str, list[tuple[str, Make]]](list)
    for seed, group, loses in product(range(first, first + num), (True, False), (True, False)):
        make: Make = partial(Town, seed, group=group, loses=loses)
        if what := told(make, range(NUM_EVENTS)):
            found[what].append((f"Town({seed}, group={group}, loses={loses})", make))
    for what, towns in found.items():
        town, make = towns[0]
        print(f"{len(towns)} times: {what}: {', '.join(each for each, _ in towns[:3])}")
        print(f"  {town}, but for what may be left out: {'; '.join(story(make, shrunk(make, what)))}")
    print(f"{4 * num} towns, {sum(map(len, found.values()))} of them went wrong")
    return int(bool(found))


def told(make: Make, events: Sequence[int]) -> str:
    """What goes wrong where only these befall it; empty: nothing."""
    try:
        make(only=events).live()
    except (AssertionError, EsperError) as error:
        return str(error)
    return ""


def shrunk(make: Make, what: str) -> list[int]:
    """As few events as still come to it: halves, then quarters, and at last single ones are left out."""
    events = list(range(NUM_EVENTS))
    size = NUM_EVENTS // 2
    while size:
        at = 0
        while at < len(events):
            rest = events[:at] + events[at + size :]
            events, at = (rest, at) if told(make, rest) == what else (events, at + size)
        size //= 2
    return events


def story(make: Make, events: Sequence[int]) -> list[str]:
    town = make(only=events)
    with suppress(AssertionError):
        for at in events:
            town.befall(at)
    return [f"{at} {what}" for at, what in zip(events, town.story, strict=False)]


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
