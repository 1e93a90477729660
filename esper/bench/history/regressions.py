"""Whether a run was slower than its baseline: one-sided, by whole runs, and an alarm only the second time running."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from esper.bench.figures import MEASURED, Figure
from esper.bench.history.store import Entry, Name, Session
from esper.bench.results import Alarm, Results, Sitting
from esper.bench.statistics.summary import AGAIN

FEWEST, MOST = 5, 20
"""Earlier runs that a baseline takes, and how far back it looks."""
ALPHA = 0.01
"""Of one run: the chance that equal code has any figure suspected in it (Holm's procedure over all its figures)."""
SMALLEST = 0.05
"""Relative: less than that does not matter."""
LEFT_OUT = frozenset(
    {"p95", "p99", "max", "mean", "ratio", "p99 ratio", "per limit", "outliers", "warm-up", "steps", "lives", "refused"}
)
"""Statistics that are not compared: told by the median already, of too few samples in each run, or how much was done in
a soak, which is no cost."""
KEPT = 200
"""Samples that are remembered of a figure at most, evenly spread over the sorted ones."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a figure cost in runs that were not suspected, oldest first, and whether the run before this one was."""

    costs: tuple[float, ...]
    was_suspect: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """How this run compares: `ratio` to the baseline's geometric mean, and the chance of one as high by chance."""

    ratio: float
    p_value: float
    floor: float

    @property
    def matters(self) -> bool:
        return self.ratio > 1.0 + max(SMALLEST, self.floor)


def judged(results: Results, sessions: Sequence[Session]) -> tuple[tuple[Alarm, ...], list[Session]]:
    """Alarms of this run, and what is to be remembered of it, given the earlier runs on an equal machine: of a run that
    was stopped and begun anew its sittings, each at its commit.

    A run of another mode is no baseline, and a figure that was suspected is not part of one: what got slower stays an
    alarm until it is mended, or its row forgotten.
    """
    earlier = defaultdict[Name, list[Entry]](list)
    for session in sessions:
        for entry in session.entries if session.mode == results.effort.mode else ():
            earlier[entry.name].append(entry)
    entries, floors = list(entries_of(results.figures)), floors_of(results.figures)
    pasts = {entry.name: past_of(earlier[entry.name]) for entry in entries}
    found = {entry.name: compare(entry.cost, pasts[entry.name], floors.get(entry.name[:2], 0.0)) for entry in entries}
    suspects = suspected({name: finding for name, finding in found.items() if finding is not None})
    alarms = tuple(
        Alarm(name[0], name[2], finding.ratio, finding.p_value)
        for name, finding in suspects.items()
        if pasts[name].was_suspect
    )
    marked = [replace(entry, suspect=entry.name in suspects) for entry in entries]
    return alarms, [session_of(results, sitting, marked) for sitting in results.sittings]


def compare(cost: float, past: Past, floor: float) -> Finding | None:
    """Against the next run that the baseline foretells: Student's one-sided prediction interval, on logarithms.

    Whole runs are what is drawn anew from one run to the next, not calls: thousands of samples of one run share its
    memory layout and its neighbours, and a test on them (Mann-Whitney's) finds every two runs different. Cost is as
    good as lognormal between runs. None: too few runs yet.
    """
    if len(past.costs) < FEWEST:
        return None
    logs = np.log(past.costs)
    num, spread = len(logs), float(np.std(logs, ddof=1))
    above = math.log(cost) - float(np.mean(logs))
    error = spread * math.sqrt(1.0 + 1.0 / num)
    p_value = float(scipy.stats.t.sf(above / error, num - 1)) if error > 0.0 else float(above <= 0.0)
    return Finding(math.exp(above), p_value, floor)


def suspected(found: Mapping[Name, Finding]) -> dict[Name, Finding]:
    """Those that Holm's step-down procedure refuses to call equal, as far as they matter (Holm, 1979)."""
    ordered = sorted(found.items(), key=lambda item: item[1].p_value)
    refused = dict[Name, Finding]()
    for rank, (name, finding) in enumerate(ordered):
        if finding.p_value > ALPHA / (len(ordered) - rank):
            break
        refused[name] = finding
    return {name: finding for name, finding in refused.items() if finding.matters}


def past_of(entries: Sequence[Entry]) -> Past:
    sound = [entry.cost for entry in entries if not entry.suspect]
    return Past(tuple(sound[-MOST:]), bool(entries) and entries[-1].suspect)


def entries_of(figures: Sequence[Figure]) -> Iterator[Entry]:
    """What is compared of a run: measured figures above 0, in units of the machine's limit where their row has one."""
    limits = {(one.row, one.shape): one.vs.arm for one in figures if one.stat == "per limit" and one.vs is not None}
    limit_costs = {
        (one.row, one.shape): one.value
        for one in figures
        if one.stat == "p50" and one.value and limits.get((one.row, one.shape)) == one.arm
    }
    for one in figures:
        is_told = one.stat in LEFT_OUT or one.arm.endswith(AGAIN) or limits.get((one.row, one.shape)) == one.arm
        if one.label == MEASURED and one.value and one.value > 0.0 and not is_told:
            cost = 1.0 / one.value if one.higher else one.value / limit_costs.get((one.row, one.shape), 1.0)
            yield Entry(one.row, one.shape, one.arm, one.stat, one.value, one.unit, cost, samples=thinned(one.samples))


def thinned(samples: Sequence[float]) -> tuple[float, ...]:
    """Evenly spread over the sorted samples, the least and the greatest among them."""
    ordered = sorted(samples)
    places = np.linspace(0, len(ordered) - 1, min(KEPT, len(ordered))).round().astype(int)
    return tuple(float(f"{ordered[at]:.4g}") for at in places)


def session_of(results: Results, sitting: Sitting, entries: Iterable[Entry]) -> Session:
    """What is remembered of the rows that were measured in one sitting."""
    own = tuple(entry for entry in entries if entry.row in sitting.rows)
    load = max(sitting.load_start, sitting.load_end)
    took_s = {row: round(results.took_s[row], 1) for row in sitting.rows}
    return Session(sitting.started_s, sitting.commit, sitting.dirty, results.effort.mode, load, own, took_s)


def floors_of(figures: Iterable[Figure]) -> dict[tuple[str, str], float]:
    """Noise floors of medians by row and shape, as the A/A controls of this run have them."""
    return {
        (one.row, one.shape): one.vs.floor
        for one in figures
        if one.stat == "p50" and one.vs is not None and one.vs.floor is not None
    }
