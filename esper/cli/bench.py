"""`esper bench`: the validation suite: what it has, a run of it, two runs beside each other, a report."""

from __future__ import annotations

import json as notation
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from esper.bench.registry import chosen, registered
from esper.bench.row import Comparison, Row
from esper.cli.bench_compare import compare
from esper.cli.bench_forget import forget
from esper.cli.bench_report import report
from esper.cli.bench_run import run
from esper.cli.bench_soak import soak
from esper.cli.bench_worker import total, worker

Command: TypeAlias = Callable[..., Any]

app = typer.Typer(
    name="bench", add_completion=False, no_args_is_help=True, help="Measure what it costs, on this machine."
)
EXAMPLES = {
    "list": "seeds kernels",
    "run": "kd-loss --gate --out bench/out",
    "compare": "one/report.json other/report.json",
    "report": "--from-results bench/out/report.json --markdown",
    "forget": "kd-loss",
    "soak": "--hours 48 --samples soak.jsonl",
    "worker": "--kind command --rate 50 --seconds 60 --run demo --out one.json",
    "sum": "one.json two.json",
}
"""What the help of each shows."""


def named(name: str) -> Callable[[Command], Command]:
    return app.command(name, epilog=f"Example: esper bench {name} {EXAMPLES[name]}")


named("run")(run)
named("compare")(compare)
named("report")(report)
named("forget")(forget)
named("soak")(soak)
named("worker")(worker)
named("sum")(total)

From = Annotated[
    list[Path] | None, typer.Option("--from", metavar="FILE", help="A Python file that sets ROWS; may be given twice.")
]


@named("list")
def list_rows(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Rows or families.")] = None,
    files: From = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List the rows that can be run: ours, those of installed packages, those of a file."""
    rows = chosen(names or [], registered(files or []))
    if json:
        for row in rows:
            typer.echo(notation.dumps(said(row)))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("family", "row", "shape", "arms"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        arms = ", ".join(arm.name for arm in row.arms) if isinstance(row, Comparison) else ""
        cells = (row.family, row.name, row.conditions if isinstance(row, Comparison) else "", arms)
        table.add_row(*map(Text, cells))
    Console().print(table)


def said(row: Row) -> dict[str, object]:
    """A row as JSON says it; goals are in the row's unit."""
    fields: dict[str, object] = {"family": row.family, "row": row.name}
    if isinstance(row, Comparison):
        goals = [
            {"arm": goal.arm, "stat": goal.stat, "target": goal.target, "aspiration": goal.aspiration}
            for goal in row.goals
        ]
        arms = [arm.name for arm in row.arms]
        fields |= {"shape": row.conditions, "unit": row.unit, "arms": arms, "limit": row.limit, "goals": goals}
    return fields
