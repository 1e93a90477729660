"""`esper bench`: the validation suite: what it has, a run of it, two runs beside each other, a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import typer

from esper.cli.bench.compare import compare
from esper.cli.bench.forget import forget
from esper.cli.bench.list import list_rows
from esper.cli.bench.report import report
from esper.cli.bench.run import run
from esper.cli.bench.soak import soak
from esper.cli.bench.worker import total, worker

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

named("list")(list_rows)
