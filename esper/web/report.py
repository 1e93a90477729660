"""The report of a finished run: one HTML file that opens without a server, runs no script and asks no other host."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jinja2 import ChoiceLoader, PackageLoader, PrefixLoader

from esper.bench.output import words
from esper.bench.report import charts
from esper.bench.report.charts import Plot, Point
from esper.bench.report.page import template
from esper.leyline.lifecycle import FOSSILIZED
from esper.view.curves import ALL_RANKS, Curves, Mark, Plot as Name
from esper.view.line import Line
from esper.view.naming import by_value
from esper.view.picture import Picture
from esper.view.wording import counted
from esper.web import document
from esper.web.finished import Finished

NUM_POINTS = 170
NUM_LABELS = 4
MOST_LINES = 6
MOST_WORTHS = 8
MOST_DRAWN = 1e100
"""Of a value, either way: a loss of 1e200, which a run that diverges may meet, ends whoever reckons an axis for it."""
_LOSSES = (ALL_RANKS, "validation")
_GRAFTS = {"BLENDING": "grafted", "FOSSILIZED": "fossilized", "CULLED": "culled", document.ROLLED_BACK: "rolled back"}


def html(run: Finished) -> str:
    """The whole page."""
    loader = ChoiceLoader(
        [PackageLoader("esper.web", "."), PrefixLoader({"base": PackageLoader("esper.bench.report", ".")})]
    )
    return template("report.html", loader).render(
        run=run,
        run_id=run.picture.run_id,
        when=f"{moment(run.first_ms)} to {moment(run.last_ms)} UTC",
        figures=figures(run),
        plots=plots(run.curves, document.marked(run.curves, run.picture)),
        seeds=[document.seed_page(seed) for seed in run.picture.seeds.ordered],
        reports=[run.reports[worker] for worker in sorted(run.reports, key=by_value)],
        rows=[document.timeline_row(row) for row in run.timeline.rows if not row.is_empty],
        num_empty=sum(row.is_empty for row in run.timeline.rows),
        findings=[*run.checked.findings, *run.checked.notes],
        number=number,
        at=moment if moment(run.first_ms)[:10] != moment(run.last_ms)[:10] else of_day,
    )


def figures(run: Finished) -> dict[str, str]:
    """The run in a few lines."""
    orders, checked, rounds = run.picture.orders, run.checked, run.rounds
    latency: Any = rounds["latency_ms"]
    ended = f"{len(run.reports)} of {run.world_size} ranks" if run.reports else "no rank"
    equal = {True: "equal on all ranks", False: "DIFFERENT between ranks", None: f"not told: {ended} ended in order"}
    if any(report.part_digest for report in run.reports.values()):  # of which no rank holds what another does
        equal[True] += ", but for the parts that each holds alone"
    seals = "every seal" if checked.seals_checked else "no seal, as there is no secret keyring,"
    refused = ", ".join(f"{count} {reason}" for reason, count in sorted(orders.rejected.items())) or "none"
    return {
        "trained": progress(run),
        "accuracy": accuracy(run),
        "parameters": equal[run.are_equal],
        "seeds": grown(run.picture),
        "commands": f"{orders.num_published:,} published, {orders.num_applied:,} applied",
        "not applied": refused,
        "rounds": f"{rounds['committed']:,} committed, {rounds['aborted']:,} aborted; "
        f"p50 {number(latency['p50'])} ms, p99 {number(latency['p99'])} ms",
        **({"rollbacks": rollbacks(run.picture)} if run.picture.seeds.rollbacks else {}),
        "log": f"{checked.num_entries:,} entries; {seals} and {checked.num_signatures} signatures checked: "
        f"{len(checked.findings)} findings, {len(checked.notes)} notes",
    }


def accuracy(run: Finished) -> str:
    """As the workers said at their end, or else in their newest states: each that differs."""
    ended, states = run.reports.values(), run.picture.states.values()
    noted = [report.notes["accuracy"] for report in ended if "accuracy" in report.notes]
    newest = [state.validation_accuracy for state in states if not math.isnan(state.validation_accuracy)]
    return ", ".join(sorted({words.number(each) for each in (noted if ended else newest)})) or "not told"


def grown(picture: Picture) -> str:
    """What became of the seeds: how many stand where, and what those that are part of the model were worth."""
    stages = Counter(document.seed_row(seed)["stage"].lower() for seed in picture.seeds.ordered)
    told = ", ".join(f"{count} {stage or 'untold'}" for stage, count in stages.most_common())
    worth = [
        f"{number(seed.gain.mean)} ({seed.state.seed_id})"
        for seed in picture.seeds.ordered
        if seed.gain is not None and seed.stage == FOSSILIZED and not seed.is_gone
    ]
    return f"{told or 'none'}{'; held-out loss lower by ' * bool(worth)}{', '.join(worth[:MOST_WORTHS])}"


def rollbacks(picture: Picture) -> str:
    """Before which step, to where and by whom."""
    return "; ".join(f"before step {step:,}: {told}" for step, told in sorted(picture.seeds.rollbacks.items()))


def progress(run: Finished) -> str:
    """As the workers said at their end, or else in their newest states."""
    if ended := run.reports.values():
        steps, epochs = max(report.steps for report in ended), max(report.epochs for report in ended)
        return f"{steps:,} steps in {epochs:,} epochs on {counted(len(ended), 'worker')}"
    states = run.picture.states.values()
    steps = max((state.global_step for state in states), default=0)
    return f"{steps:,} steps so far on {counted(len(states), 'worker')}" if states else "not told"


def plots(curves: Curves, marks: Sequence[Mark]) -> list[Plot]:
    """Those that there is anything to draw of."""
    losses = {name: line for name, line in curves.lines["loss"].items() if name in _LOSSES}
    wanted: list[tuple[Name, str, str, Mapping[str, Line]]] = [
        ("loss", "", "Loss over steps, with the newest moments of grafts", losses or curves.lines["loss"]),
        ("alpha", "", "Alpha of each blended seed over steps", curves.lines["alpha"]),
        ("growth", "bytes", "Parameters of seeds over steps (bytes, by G0's measure)", curves.lines["growth"]),
        ("latency", "ms", "Barrier latency (ms), proposal to commit, over time", curves.lines["latency"]),
        ("rate", "1/s", "Telemetry (1/s): packets folded, aggregates made of them", curves.lines["rate"]),
    ]
    found = []
    for name, unit, caption, lines in wanted:
        if drawn := {label: line for label, line in lines.items() if len(line.points) > 1}:
            moments = grafts(marks, next(iter(lines.values()))) if name == "loss" else {}
            found.append(plotted(drawn, unit, caption, moments, "time" if name in ("latency", "rate") else "steps"))
    return found


def plotted(lines: Mapping[str, Line], unit: str, caption: str, moments: Mapping[str, Point], over: str) -> Plot:
    """As many lines as can be told apart; the caption says where there are more."""
    shown = {name: points(line) for name, line in list(lines.items())[:MOST_LINES]}
    said = caption if len(shown) == len(lines) else f"{caption}: the first {len(shown)} of {len(lines)}"
    return Plot(charts.curves(said, unit, labelled(shown, over), moments, over=over), said)


def points(line: Line) -> list[Point]:
    """Every nth where there are more than can be told apart."""
    every = -(-len(line.points) // NUM_POINTS)
    return [Point(x, "", drawable(y)) for x, y in line.points[::every]]


def drawable(value: float) -> float:
    return max(-MOST_DRAWN, min(MOST_DRAWN, value))


def labelled(lines: Mapping[str, list[Point]], over: str) -> dict[str, list[Point]]:
    """The same; points of the longest line say what the axis says there, a few of them, evenly."""
    longest = max(lines, key=lambda name: lines[name][-1].at - lines[name][0].at)
    line = lines[longest]
    first, span = line[0].at, line[-1].at - line[0].at
    wanted = [first + span * number / NUM_LABELS for number in range(NUM_LABELS)]
    chosen = {min(range(len(line)), key=lambda at: abs(line[at].at - x)) for x in wanted}
    said = [replace(point, label=label_of(point, over)) if at in chosen else point for at, point in enumerate(line)]
    return {**lines, longest: said}


def label_of(point: Point, over: str) -> str:
    return of_day(int(point.at * 1000)) if over == "time" else f"{point.at:,.0f}"


def grafts(marks: Sequence[Mark], line: Line) -> dict[str, Point]:
    """The newest moments of seeds, and rollbacks, on the line."""
    xs = [x for x, _ in line.points]
    found = {}
    for mark in marks[-MOST_LINES:]:
        at = bisect_right(xs, mark.step) - 1
        if at >= 0:
            word = _GRAFTS.get(mark.stage, mark.stage)
            found[f"{mark.seed_id} {word}".strip()] = Point(mark.step, "", drawable(line.points[at][1]))
    return found


def moment(at_ms: int) -> str:
    """In UTC, to the second; a dash for none. What is no time, as a log of anybody's may hold, is told as it is."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_ms / 1000)) if at_ms else words.NONE
    except (OverflowError, OSError):
        return f"{at_ms}ms"


def of_day(at_ms: int) -> str:
    """The same without its date."""
    return moment(at_ms).rpartition(" ")[2]


def number(value: float | None) -> str:
    return words.NONE if value is None else words.number(value)
