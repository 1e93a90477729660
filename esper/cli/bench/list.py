"""`esper bench list`: the rows that can be run, and how long each takes."""

from __future__ import annotations

import json as notation
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from esper.bench.effort import Mode
from esper.bench.history.lengths import Length, length
from esper.bench.history.store import Store as Folder
from esper.bench.machine import this_machine
from esper.bench.registry import chosen, registered
from esper.bench.row import Comparison, Row
from esper.cli.bench.report import Store

From = Annotated[
    list[Path] | None, typer.Option("--from", metavar="FILE", help="A Python file that sets ROWS; may be given twice.")
]
MODES: tuple[Mode, ...] = ("quick", "full")
NONE = "?"


def list_rows(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Rows or families.")] = None,
    files: From = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    store: Store = None,
) -> None:
    """List the rows that can be run: ours, those of installed packages, those of a file.

    How long each takes is what it took in the last such run here; ~: by the pace of a quick one.
    """
    rows = chosen(names or [], registered(files or []))
    sessions = Folder(store).sessions(this_machine().key)
    lengths = {row.name: {mode: length(row, mode, sessions) for mode in MODES} for row in rows}
    if json:
        for row in rows:
            typer.echo(notation.dumps(said(row, lengths[row.name])))
        return
    console = Console()
    console.print(table_of(rows, lengths))
    console.print(Text(f"{len(rows)} rows: {'; '.join(total(mode, lengths) for mode in MODES)}", style="dim"))


def table_of(rows: Sequence[Row], lengths: Mapping[str, Mapping[Mode, Length | None]]) -> Table:
    """A row's name in one piece, as it is to be typed."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("family", overflow="fold")
    table.add_column("row", no_wrap=True)
    for mode in MODES:
        table.add_column(mode, justify="right", no_wrap=True)
    table.add_column("arms, at which shape", overflow="fold")
    above = ""
    for row in rows:
        times = [spoken(lengths[row.name][mode]) for mode in MODES]
        table.add_row(*map(Text, ("" if row.family == above else row.family, row.name, *times, described(row))))
        above = row.family
    return table


def described(row: Row) -> str:
    if not isinstance(row, Comparison):
        return ""
    return "; ".join(filter(None, (", ".join(arm.name for arm in row.arms), row.conditions)))


def spoken(of: Length | None) -> str:
    return NONE if of is None else f"{'~' if of.is_derived else ''}{lasting(of.seconds)}"


def lasting(seconds: float) -> str:
    """As "8 s", "12 min", "2.4 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def total(mode: Mode, lengths: Mapping[str, Mapping[Mode, Length | None]]) -> str:
    known = [found for each in lengths.values() if (found := each[mode]) is not None]
    if not known:
        return f"{mode} not known before a quick run was made here"
    others = len(lengths) - len(known)
    more = f", and {others} of which no run here tells" if others else ""
    return f"{mode} {lasting(sum(each.seconds for each in known))}{more}"


def said(row: Row, lengths: Mapping[Mode, Length | None]) -> dict[str, object]:
    """A row as JSON says it; goals are in the row's unit."""
    fields: dict[str, object] = {"family": row.family, "row": row.name}
    if isinstance(row, Comparison):
        goals = [
            {"arm": goal.arm, "stat": goal.stat, "target": goal.target, "aspiration": goal.aspiration}
            for goal in row.goals
        ]
        arms = [arm.name for arm in row.arms]
        fields |= {"shape": row.conditions, "unit": row.unit, "arms": arms, "limit": row.limit, "goals": goals}
    fields |= {f"{mode}_s": round(of.seconds, 1) for mode, of in lengths.items() if of is not None}
    return fields
