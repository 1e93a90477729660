"""Two records of what one producer's sequences were, joined into one: seen is what either has seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from esper.leyline.replay import ReplayGuard, WindowName, window_name
from esper.leyline.window import MAX_GAPS, SPAN, Window

Ranges = list[int]
"""From, to (not included), from, to, ... in order, as a window keeps its gaps."""


def absorb(guard: ReplayGuard, fields: Mapping[str, bytes]) -> None:
    """Join what another guard has persisted into this one; what is new by that is persisted with the next effect.

    Of a sequence that both have seen, this guard's entry stays.
    """
    others: dict[WindowName, Window] = {}
    for field, value in fields.items():
        if value:
            name, slot = window_name(field)
            others.setdefault(name, Window([])).take_up(slot, value)
    for name, other in others.items():
        join(guard.window_named(name), other)


def join(into: Window, other: Window) -> None:
    """Whatever `other` has seen counts as seen. `other` is spent by this."""
    floor = max(into.floor, other.floor)
    for window in (into, other):
        if window.floor < floor:
            window.slide(floor + SPAN)
    if floor:
        kept = intersection(into.gaps, other.gaps)[-2 * MAX_GAPS :]
        if kept != into.gaps:
            into.gaps, into.summary_changed = kept, True
            into.touch()
    for sequence, record in other.records.items():
        if sequence >= floor:
            into.note(sequence, record)


def intersection(one: Ranges, other: Ranges) -> Ranges:
    """Where both have a gap."""
    return [edge for start, end in _overlaps(one, other) for edge in (start, end)]


def _overlaps(one: Ranges, other: Ranges) -> Iterator[tuple[int, int]]:
    i = j = 0
    while i < len(one) and j < len(other):
        start, end = max(one[i], other[j]), min(one[i + 1], other[j + 1])
        if start < end:
            yield start, end
        if one[i + 1] < other[j + 1]:
            i += 2
        else:
            j += 2
