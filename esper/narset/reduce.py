"""Columns of packets into windows of figures, all windows of the same length at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from esper.leyline import contracts as pb
from esper.narset.columns import Columns
from esper.narset.reduction import MAX_EVENTS, MAX_METRICS, Reduction
from esper.narset.statistics import Origin, Statistics, of_stack, of_values

LEVELS: Mapping[int, str] = {number: name.removeprefix("TELEMETRY_") for name, number in pb.TelemetryLevel.items()}


def reduce_packets(gathered: Iterable[Columns], length: int) -> list[Reduction]:
    """Windows of `length` packets that measure the same; what is left over, in as few windows as it fits in."""
    windows = [window for columns in gathered for window in reduce_columns(columns, length)]
    whole = [window for window in windows if window.num_packets == length]
    for rest in windows:
        if rest.num_packets == length:
            continue
        if whole and whole[-1].num_packets + rest.num_packets <= length:
            whole[-1].merge(rest)
        else:
            whole.append(rest)
    return whole


def reduce_columns(columns: Columns, length: int) -> list[Reduction]:
    """Of every `length` packets the figures over them; the last window may have fewer."""
    starts = range(0, len(columns), length)
    windows = [_outlined(columns, start, start + length) for start in starts]
    for place in columns.messages:
        windows[place // length].num_messages += 1
    for place, event in columns.events:
        windows[place // length].events = [*windows[place // length].events, event][-MAX_EVENTS:]
    for window, statistics in zip(windows, _statistics(columns, windows, length), strict=True):
        window.metrics = dict(zip(columns.names, statistics, strict=False))
    if columns.points:
        _add_points(columns, windows, length)
    return windows


def _outlined(columns: Columns, start: int, end: int) -> Reduction:
    """How many packets, and from when to when."""
    times_ns, levels = columns.times_ns[start:end], columns.levels[start:end]
    return Reduction(
        num_packets=len(times_ns),
        first_timestamp_ns=min(times_ns),
        last_timestamp_ns=max(times_ns),
        max_step=max(columns.steps[start:end]),
        levels=counted(levels),
    )


def counted(levels: Sequence[int]) -> Counter[str]:
    """How many there are of each level, by its name."""
    if levels.count(levels[0]) == len(levels):  # nearly always
        return Counter({LEVELS.get(levels[0], "UNKNOWN"): len(levels)})
    return Counter(LEVELS.get(level, "UNKNOWN") for level in levels)


def _statistics(columns: Columns, windows: Sequence[Reduction], length: int) -> list[list[Statistics]]:
    """Of each window, metric by metric."""
    if not columns.names:
        return [[] for _ in windows]
    table = np.frombuffer(columns.values).reshape(len(columns), -1)[:, :MAX_METRICS]
    newest = [_newest(columns, at * length, length, window) for at, window in enumerate(windows)]
    num_whole = len(columns) // length
    found = []
    for first, last, each in ((0, num_whole, length), (num_whole, len(windows), len(columns) - num_whole * length)):
        if first < last:
            rows = table[first * length : first * length + (last - first) * each]
            stack = rows.reshape(last - first, each, -1).transpose(0, 2, 1)
            found += _of_windows(stack, newest[first:last], columns, first * length)
    return found


def _newest(columns: Columns, start: int, length: int, window: Reduction) -> tuple[int, Origin]:
    """The place of its newest packet in a window, and that one's origin."""
    times_ns = columns.times_ns[start : start + length]
    if times_ns.count(window.last_timestamp_ns) == 1:
        place = times_ns.index(window.last_timestamp_ns)
    else:
        sources, sequences = columns.sources[start : start + length], columns.sequences[start : start + length]
        places = range(0, -len(times_ns), -1)  # of equal origins the first
        place = -max(zip(times_ns, sources, sequences, places, strict=True))[3]
    return place, columns.origin(start + place)


def _of_windows(
    stack: NDArray[np.float64], newest: Sequence[tuple[int, Origin]], columns: Columns, start: int
) -> list[list[Statistics]]:
    """Of windows in a row, (windows, metrics, packets), the first of which begins at `start`."""
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(stack).all(axis=(1, 2)))
    kept = newest if finite.all() else [each for each, holds in zip(newest, finite, strict=True) if holds]
    whole = iter(of_stack(stack[finite] if len(kept) < len(newest) else stack, kept) if kept else ())
    length = stack.shape[2]
    return [
        next(whole)
        if holds
        else _one_by_one(table, [columns.origin(start + at * length + each) for each in range(length)])
        for at, (table, holds) in enumerate(zip(stack, finite.tolist(), strict=True))
    ]


def _one_by_one(table: NDArray[np.float64], origins: Sequence[Origin]) -> list[Statistics]:
    """Metric by metric, so that values which are not finite are left out of each."""
    order = sorted(range(len(origins)), key=origins.__getitem__)
    ordered = [origins[place] for place in order]
    return [of_values(row[order], ordered) for row in table]


def _add_points(columns: Columns, windows: Sequence[Reduction], length: int) -> None:
    """Points beside the values: few, so one by one."""
    found: dict[tuple[int, str], list[tuple[Origin, float]]] = {}
    for place, name, value in columns.points:
        found.setdefault((place // length, name), []).append((columns.origin(place), value))
    for (at, name), met in found.items():
        metrics = windows[at].metrics
        if name in metrics or len(metrics) < MAX_METRICS:
            met.sort(key=itemgetter(0))
            statistics = of_values(np.array([value for _, value in met]), [origin for origin, _ in met])
            metrics.setdefault(name, Statistics()).merge(statistics)
