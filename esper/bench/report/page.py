"""What the page shows, put together: families, their rows, tables beside plots, earlier runs, the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined, Template

from esper.bench.figures import Figure
from esper.bench.history.store import Session
from esper.bench.output import table, words
from esper.bench.output.document import Document
from esper.bench.report import charts, history, sizes, spread
from esper.bench.report.charts import Plot


@dataclass(frozen=True, slots=True)
class RowView:
    """One row at one shape."""

    name: str
    shape: str
    figures: list[Figure]
    asides: list[str]
    spreads: list[spread.Spread]
    plots: list[Plot]


@dataclass(frozen=True, slots=True)
class FamilyView:
    """Rows of one family, and the curves over their sizes."""

    name: str
    rows: list[RowView]
    plots: list[Plot]


def html(document: Document, sessions: Sequence[Session] = ()) -> str:
    """The whole page. `sessions`: runs on an equal machine, oldest first; those of this effort are the history."""
    results = document.results
    alike = [session for session in sessions if session.mode == results.effort.mode]
    return template("page.html", PackageLoader("esper.bench.report", ".")).render(
        results=results,
        machine=machine(document),
        summary=table.summary(results),
        closing=list(table.troubles(results)),
        notes=list(table.sittings(results)),
        resized=resized(results.figures),
        goals=[figure for figure in results.figures if figure.target is not None or figure.aspiration is not None],
        families=[family(name, figures, alike) for name, figures in document.by_family.items()],
        when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(results.started_s)),
        num_sessions=len(alike),
        words=words,
    )


def template(name: str, loader: BaseLoader) -> Template:
    """Everything is escaped, and nothing may be missing."""
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.get_template(name)


def resized(figures: Sequence[Figure]) -> set[str]:
    """Rows of more than one shape, whose figures nothing else tells apart."""
    shapes: dict[str, set[str]] = {}
    for figure in figures:
        shapes.setdefault(figure.row, set()).add(figure.shape)
    return {row for row, found in shapes.items() if len(found) > 1}


def family(name: str, figures: Sequence[Figure], sessions: Sequence[Session]) -> FamilyView:
    grouped = groupby(figures, key=lambda figure: (figure.row, figure.shape))
    rows = [row_view(row, shape, list(group), sessions) for (row, shape), group in grouped]
    units = {figure.row: figure.unit for figure in figures if figure.stat == sizes.STAT}
    plots = [
        Plot(charts.curves(f"{row} over size", units[row], lines), f"{row}: median ({units[row]}) over size")
        for row, lines in sizes.scaling(figures).items()
    ]
    return FamilyView(name, rows, plots)


def row_view(row: str, shape: str, figures: list[Figure], sessions: Sequence[Session]) -> RowView:
    listed = [figure for figure in figures if not table.is_aside(figure)]
    spreads = spread.spreads(figures)
    drawn = _distribution(row, spreads) if len(spreads) != 1 else _in_order(row, figures)
    plots = [*drawn, *_history(row, shape, sessions, [each.arm for each in spreads])]
    return RowView(row, shape, listed, list(table.asides(figures)), spreads, plots)


def machine(document: Document) -> dict[str, str]:
    """The fingerprint, in words."""
    of = document.results.machine
    said = {
        "processor": f"{of.cpu}, {of.cores} cores",
        "memory": f"{of.memory_bytes / 2**30:.1f} GiB",
        "GPU": ", ".join(of.gpus) or "none",
        "system": f"{of.kernel}, Python {of.python}",
        "torch": f"{of.torch}, threads: {of.threads or 'unknown'}" if of.torch else "none",
        "clock governor": of.governor or "not told",
        "settings": ", ".join(f"{name}={value}" for name, value in of.pins.items()) or "none",
        "commit": (of.commit or "unknown") + (", with changes" if of.dirty else ""),
        "load of the last minute": f"{of.load_start:.2f} at the start, {of.load_end:.2f} at the end",
        "key": of.key,
    }
    return said


def _distribution(row: str, spreads: Sequence[spread.Spread]) -> Iterator[Plot]:
    if spreads:
        unit = spreads[0].unit
        same = [each for each in spreads if each.unit == unit]
        caption = f"{row}: samples ({unit}); box: quartiles and median, whiskers: within Tukey's fences"
        yield Plot(charts.boxes(f"{row}, samples", same), caption)


def _in_order(row: str, figures: Sequence[Figure]) -> Iterator[Plot]:
    """An arm alone has nothing to stand beside: how it went on instead, as for a soak."""
    for figure in figures:
        if len(figure.samples) > 1:
            what = f"{row}, {figure.stat}"
            svg = charts.curves(f"{what}, in order", figure.unit, {figure.arm: charts.in_order(figure.samples)})
            yield Plot(svg, f"{what}: samples ({figure.unit}) in the order in which they were taken")


def _history(row: str, shape: str, sessions: Sequence[Session], arms: Sequence[str]) -> Iterator[Plot]:
    lines = history.lines(row, shape, sessions)
    if lines:
        yield Plot(
            charts.curves(f"{row}, earlier runs", history.unit(row, shape, sessions), lines, arms=arms),
            f"{row}: median ({history.unit(row, shape, sessions)}) in runs on this machine",
        )
