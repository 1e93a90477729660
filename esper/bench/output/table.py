"""Figures as tables for a terminal: one a row of the suite, in eighty columns, in colour only where there is any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from esper.bench.figures import Figure
from esper.bench.output import words
from esper.bench.output.document import Document
from esper.bench.results import Results
from esper.view import wording

ASIDES = frozenset({"outliers", "warm-up"})
VALUE = "value"
_STYLES: Mapping[object, str] = {
    "slower": "red",
    "faster": "green",
    "indistinguishable": "dim",
    True: "green",
    False: "red",
}
_LEGEND = (
    "Ratios stand with their 95 % interval; alike: no difference above both the threshold and the noise of this run."
)


def show(document: Document, console: Console) -> None:
    """Every figure, then what failed, what alarms, and what it comes to."""
    for family, figures in document.by_family.items():
        show_rows(family, figures, console)
    console.print(Text(_LEGEND, style="dim"))
    for line in closing(document.results):
        console.print(Text(line))


def show_rows(family: str, figures: Sequence[Figure], console: Console) -> None:
    """A table for each row at each shape."""
    for (row, shape), group in groupby(figures, key=lambda figure: (figure.row, figure.shape)):
        own = list(group)
        console.print(Text.assemble((f"{family} / {row}", "bold"), (f"  {shape}" if shape else "", "dim")))
        if listed := [figure for figure in own if not is_aside(figure)]:
            console.print(table_of(listed))
        for aside in (*counted(own), *asides(own)):
            console.print(Text(aside, style="dim"))
        console.print()


def table_of(figures: Sequence[Figure]) -> Table:
    """Of one row of the suite at one shape: an arm is named on its first line, what all are compared with on top."""
    columns = columns_of(figures)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("arm", overflow="fold", min_width=12, max_width=24)
    for heading in columns:
        table.add_column(heading, overflow="fold", justify="right" if heading == VALUE else "left", min_width=4)
    above = ""
    for figure in figures:
        table.add_row(Text("" if figure.arm == above else figure.arm), *(cell(figure) for cell in columns.values()))
        above = figure.arm
    return table


def columns_of(figures: Sequence[Figure]) -> dict[str, Callable[[Figure], Text]]:
    """Heading: what makes the cell, all but the arm's. Texts, so that nothing in a name is taken for markup."""
    columns: dict[str, Callable[[Figure], Text]] = {
        "stat": lambda figure: Text(figure.stat),
        VALUE: lambda figure: Text(words.value_of(figure)),
    }
    if bases := Counter(figure.vs.arm for figure in figures if figure.vs is not None):
        [(base, _)] = bases.most_common(1)
        columns[f"x {base}"] = partial(_ratio, base=base)
    if any(figure.target is not None or figure.aspiration is not None for figure in figures):
        columns["target"] = lambda figure: Text(words.goals_of(figure), style=_STYLES.get(figure.met, ""))
    return columns


def _ratio(figure: Figure, base: str) -> Text:
    """Names what it is compared with where that isn't the heading's."""
    if figure.vs is None:
        return Text()
    said = words.interval(figure.vs) + ("" if figure.vs.arm == base else f" x {figure.vs.arm}")
    verdict = figure.vs.verdict
    return Text(f"{said} {words.brief(verdict)}" if verdict else said, style=_STYLES.get(verdict, ""))


def is_aside(figure: Figure) -> bool:
    """Whether it says something of the measuring: what was left out, how it warmed up, how many samples lay far out."""
    return figure.value is None or figure.stat in ASIDES


def counted(figures: Sequence[Figure]) -> Iterator[str]:
    """How many samples there were to a figure, where there were any."""
    if counts := sorted({figure.num for figure in figures if figure.num and not is_aside(figure)}):
        yield f"n {' to '.join(f'{count:,}' for count in dict.fromkeys((counts[0], counts[-1])))}"


def asides(figures: Sequence[Figure]) -> Iterator[str]:
    """One line for all arms of which the same is said."""
    said: dict[str, list[str]] = {}
    for figure in filter(is_aside, figures):
        if figure.value is None:
            said.setdefault(f"{figure.stat} {figure.label}: ", []).append(figure.arm)
        else:
            said.setdefault(f"{figure.stat}: ", []).append(f"{figure.arm} {words.number(figure.value)}")
    yield from (text + ", ".join(dict.fromkeys(arms)) for text, arms in said.items())


def closing(results: Results) -> Iterator[str]:
    """All that there is to know of the whole, each on a line; `summary` is the last."""
    yield from troubles(results)
    yield from sittings(results)
    yield summary(results)


def troubles(results: Results) -> Iterator[str]:
    """What failed and what alarms."""
    yield from (f"failed: {failure}" for failure in results.failures)
    yield from (f"alarm: {alarm}" for alarm in results.alarms)
    yield from (f"gate missed: {each.row}, {each.arm} {each.stat}" for each in results.missed)


def sittings(results: Results) -> Iterator[str]:
    """What was measured when, where not in one go; and what was not reached."""
    if len(results.sittings) > 1:
        yield from (f"measured {sitting}" for sitting in results.sittings)
    if results.left:
        yield f"interrupted before {len(results.left)} rows were done: {', '.join(results.left)}"


def summary(results: Results) -> str:
    """One sentence: how many figures there are, how many targets are met, and in what time."""
    met = [figure.met for figure in results.figures if figure.met is not None]
    without = sum(figure.value is None for figure in results.figures)
    took_s = sum(each.ended_s - each.started_s for each in results.sittings) or results.ended_s - results.started_s
    took = f"{took_s:.0f} s ({results.effort.mode})"
    failed = wording.counted(len(results.failures), "row")
    counts = f"{wording.counted(len(results.figures), 'figure')}, {without} not measured, {failed} failed"
    return f"{counts}, {sum(met)} of {len(met)} targets met, in {took}"
