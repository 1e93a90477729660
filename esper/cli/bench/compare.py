"""`esper bench compare`: two files of results beside each other."""

from __future__ import annotations

import json as notation
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from esper.bench.history.contrast import Contrast, contrasts, missing
from esper.bench.output import words
from esper.bench.output.document import Document, read
from esper.errors import SettingError

APART = (
    "Runs apart: values move with the machine's hour, ratios to each run's own reference do not; what else differs "
    "from one run to the next is in no interval here. `esper bench run --baseline REV --current REV` takes both in one."
)


def compare(
    one: Annotated[Path, typer.Argument(help="A report.json of `esper bench run --out DIR`.")],
    other: Annotated[Path, typer.Argument(help="Another one: what is shown is this one to the first.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, and nothing else.")] = False,
) -> None:
    """Compare two runs by the ratios that each has to its own reference. A slower figure is no failure: status 0."""
    first, second = read(one), read(other)
    found = list(contrasts(first.results, second.results))
    if not found:
        raise SettingError("the two runs", f"{one}, {other}", "at least one figure that both have")
    if json:
        for each in found:
            typer.echo(notation.dumps(said(each, first)))
        return
    show(found, first, second)


def show(found: Sequence[Contrast], first: Document, second: Document) -> None:
    """A table a row for a person, and what there is to know of all."""
    console = Console()
    for (row, shape), group in groupby(found, key=lambda each: (each.one.row, each.one.shape)):
        console.print(Text.assemble((row, "bold"), (f"  {shape}" if shape else "", "dim")))
        console.print(table_of(list(group)))
        console.print()
    console.print(Text(APART, style="dim"))
    for line in asides(first, second):
        console.print(Text(line))


def table_of(group: Sequence[Contrast]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("arm", overflow="fold", min_width=12, max_width=20)
    table.add_column("stat", overflow="fold", min_width=4)
    for heading in ("one", "other", "other/one"):
        table.add_column(heading, justify="right", overflow="fold", min_width=8)
    table.add_column("to the reference", overflow="fold")
    for each in group:
        table.add_row(*map(Text, cells(each)))
    return table


def cells(each: Contrast) -> list[str]:
    quotient = "" if each.values is None else words.times(each.values)
    ratio = "" if each.ratios is None else words.interval(each.ratios)
    return [each.one.arm, each.one.stat, words.value_of(each.one), words.value_of(each.other), quotient, ratio]


def asides(first: Document, second: Document) -> list[str]:
    """Whether the machines differ, and which rows only one of them has."""
    one, other = first.results, second.results
    differ = one.machine.key != other.machine.key
    machines = [f"Two machines ({one.machine.key}, {other.machine.key}): their values can't be compared."]
    only = [(name, missing(*pair)) for name, pair in (("one", (one, other)), ("other", (other, one)))]
    return (machines if differ else []) + [f"Only in {name}: {', '.join(rows)}" for name, rows in only if rows]


def said(each: Contrast, document: Document) -> dict[str, object]:
    """As JSON says it; `vs` is of the ratios to each run's own reference."""
    fields: dict[str, object] = {"bench": document.family(each.one), "row": each.one.row, "shape": each.one.shape}
    fields |= {"arm": each.one.arm, "stat": each.one.stat, "unit": each.one.unit}
    fields |= {"one": each.one.value, "other": each.other.value, "ratio": each.values}
    if each.ratios is not None:
        of = each.ratios
        fields["vs"] = {"arm": of.arm, "ratio": of.ratio, "low": of.low, "high": of.high}
    return fields
