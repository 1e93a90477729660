"""Figures as tables for a terminal: one a row of the suite, in eighty columns, in colour only where there is any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from esper.bench import words
from esper.bench.document import Document
from esper.bench.figures import Figure
from esper.bench.results import Results

ASIDES = frozenset({"outliers", "warm-up"})
_STYLES = {"slower": "red", "faster": "green", "indistinguishable": "dim"}


def show(document: Document, console: Console) -> None:
    """Every figure, then what failed, what alarms, and what it comes to."""
    for family, figures in document.by_family.items():
        for (row, shape), group in groupby(figures, key=lambda figure: (figure.row, figure.shape)):
            own = list(group)
            console.print(Text(f"{family} / {row}", style="bold") + Text(f"  {shape}", style="dim"))
            if listed := [figure for figure in own if not is_aside(figure)]:
                console.print(table_of(listed))
            for aside in asides([figure for figure in own if is_aside(figure)]):
                console.print(Text(aside, style="dim"))
            console.print()
    for line in closing(document.results):
        console.print(Text(line))


def table_of(figures: Sequence[Figure]) -> Table:
    """Of one row of the suite at one shape; an arm is named on its first line."""
    goals = any(figure.target is not None or figure.aspiration is not None for figure in figures)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("arm", overflow="fold", min_width=12)
    table.add_column("stat", overflow="fold")
    table.add_column("value", justify="right", overflow="fold", min_width=9)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("ratio [95 % interval]", overflow="fold")
    if goals:
        table.add_column("target", overflow="fold")
    above = ""
    for figure in figures:
        table.add_row(Text("" if figure.arm == above else figure.arm), *cells(figure, goals=goals))
        above = figure.arm
    return table


def cells(figure: Figure, *, goals: bool) -> list[Text]:
    """All but the arm. Texts, so that nothing in a name is taken for markup."""
    verdict = figure.vs.verdict if figure.vs is not None else None
    count = f"{figure.num:,}" if figure.num else ""
    ratio = Text(words.ratio_of(figure), style=_STYLES.get(verdict or "", ""))
    said = [Text(figure.stat), Text(words.value_of(figure)), Text(count), ratio]
    met = {True: "green", False: "red", None: ""}[figure.met]
    return [*said, Text(words.goals_of(figure), style=met)] if goals else said


def is_aside(figure: Figure) -> bool:
    """Whether it says something of the measuring: what was left out, how it warmed up, how many samples lay far out."""
    return figure.value is None or figure.stat in ASIDES


def asides(figures: Sequence[Figure]) -> Iterator[str]:
    """One line for all arms of which the same is said."""
    said: dict[str, list[str]] = {}
    for figure in figures:
        words_of = figure.label if figure.value is None else words.amount(figure.value, figure.unit)
        said.setdefault(f"{figure.stat} {words_of}", []).append(figure.arm)
    yield from (f"{text} ({', '.join(dict.fromkeys(arms))})" for text, arms in said.items())


def closing(results: Results) -> Iterator[str]:
    """What failed and what alarms, each on a line; then how many figures there are, and how many targets are met."""
    yield from (f"failed: {failure}" for failure in results.failures)
    yield from (f"alarm: {alarm}" for alarm in results.alarms)
    yield from (f"gate missed: {each.row}, {each.arm} {each.stat}" for each in results.missed)
    yield summary(results)


def summary(results: Results) -> str:
    """One sentence."""
    met = [figure.met for figure in results.figures if figure.met is not None]
    without = sum(figure.value is None for figure in results.figures)
    took = f"{results.ended_s - results.started_s:.0f} s ({results.effort.mode})"
    counts = f"{len(results.figures)} figures, {without} not measured, {len(results.failures)} rows failed"
    return f"{counts}, {sum(met)} of {len(met)} targets met, in {took}"
