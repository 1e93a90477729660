"""`esper bench run`: measures rows, prints what they came to, and writes it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from esper.bench.effort import EFFORTS, Mode
from esper.bench.figures import Figure
from esper.bench.machine import Machine, this_machine
from esper.bench.output import lines, table
from esper.bench.output.document import Document, write
from esper.bench.registry import chosen, registered
from esper.bench.results import Results
from esper.bench.row import Row
from esper.bench.underway import Underway
from esper.cli.bench_report import NAME, Keyring, Redis, Region, Run, Store, save, told
from esper.errors import SettingError

INTERRUPTED = 130
Revision = Annotated[
    str, typer.Option(metavar="REV", help='Compare two revisions in one run; "." is the checkout as it is.')
]


def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Rows or families of `esper bench list`; else all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="At least 30 pairs, 5 s a row at most (the default).")] = False,
    gate: Annotated[bool, typer.Option("--gate", help="At least 60 pairs; status 1 on a missed gate.")] = False,
    full: Annotated[bool, typer.Option("--full", help="At least 200 pairs, for figures that are published.")] = False,
    files: Annotated[
        list[Path] | None, typer.Option("--from", metavar="FILE", help="A Python file that sets ROWS.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, and nothing else.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write report.json and report.html into this folder.")] = None,
    seed: Annotated[int, typer.Option(help="Of the order in which arms take turns.")] = 0,
    sample: Annotated[bool, typer.Option("--sample", help="Only the first row of each family.")] = False,
    store: Store = None,
    baseline: Revision = "",
    current: Revision = "",
    redis: Redis = None,
    to_run: Run = None,
    keyring: Keyring = None,
    region: Region = "",
) -> None:
    """Measure rows, each arm beside the others in one interleaved run.

    Interrupted, it prints and writes what there is so far.

    Status 1: a row failed; with --gate also a missed gate, or a row slower than before on this machine, twice running.
    """
    rows = chosen(names or [], registered(files or []))
    rows = firsts(rows) if sample else rows
    families = {row.name: row.family for row in rows}
    effort = replace(EFFORTS[mode(quick=quick, gate=gate, full=full)], seed=seed)
    errors = Console(stderr=True)
    underway = Underway(effort, Progress(families, errors, as_json=json))
    if baseline or current:
        work = partial(between, rows, baseline, current, files or [], underway)
    else:
        work = partial(here, rows, store, underway)
    if out is not None:
        place(out)
    results, interrupted = so_far(work, underway)
    document = Document(results, families)
    deliver(document, out, store, as_json=json)
    if to_run is not None or redis is not None:
        told(document, to_run, redis, keyring, region)
    code = status(document.results, errors if json else None)
    raise typer.Exit(INTERRUPTED if interrupted else code)


def so_far(work: Callable[[], Results], underway: Underway) -> tuple[Results, bool]:
    """What it comes to, or what there was when it was interrupted: that is not remembered in the store."""
    try:
        return work(), False
    except KeyboardInterrupt:
        return underway.results(), True


def place(folder: Path) -> None:
    """Made where it isn't there, before hours are spent on what is to lie in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError("--out", str(folder), f"a folder that can be written to ({error.strerror})") from None


def deliver(document: Document, out: Path | None, store: Path | None, *, as_json: bool) -> None:
    """Files first, as a table can end in a closed pipe; the table in any case, as a disk can be full."""
    try:
        if out is not None:
            write(document, out / "report.json")
            save(document, out / NAME, store)
    finally:
        if not as_json:
            table.show(document, Console())


def here(rows: Sequence[Row], store: Path | None, underway: Underway) -> Results:
    """This revision, compared with earlier runs on this machine, and remembered."""
    from esper.bench import runner  # scipy, which listing rows does without
    from esper.bench.history import store as stored

    return runner.carried_out(rows, underway, stored.Store(store))


def between(rows: Sequence[Row], baseline: str, current: str, files: Sequence[Path], underway: Underway) -> Results:
    """Two revisions in one interleaved run."""
    from esper.bench.revisions import interleaved

    if not (baseline and current):
        name, given = ("--current", current) if baseline else ("--baseline", baseline)
        raise SettingError(name, given, 'a revision as well, or "." for the checkout as it is')
    return interleaved.compare(rows, interleaved.Revisions(baseline, current, files), underway)


def firsts(rows: Sequence[Row]) -> list[Row]:
    """One of each family."""
    return list({row.family: row for row in reversed(rows)}.values())[::-1]


@dataclass
class Progress:
    """Told each figure as it is made: JSON goes out at once, a person is told on stderr which row is done."""

    families: Mapping[str, str]
    errors: Console
    as_json: bool
    row: str = ""
    machine: Machine = field(default_factory=this_machine)

    def __call__(self, figure: Figure) -> None:
        if self.as_json:
            typer.echo(lines.as_line(figure, lines.family_of(figure.row, self.families), self.machine))
        elif figure.row != self.row:
            self.row = figure.row
            self.errors.print(f"measured {figure.row}", markup=False, highlight=False, soft_wrap=True)


def mode(*, quick: bool, gate: bool, full: bool) -> Mode:
    """The one that was asked for; quick where none was."""
    wanted: dict[Mode, bool] = {"quick": quick, "gate": gate, "full": full}
    asked = [name for name, is_wanted in wanted.items() if is_wanted]
    if len(asked) > 1:
        raise SettingError("the effort", " and ".join(asked), "one of --quick, --gate and --full")
    return asked[0] if asked else "quick"


def status(results: Results, errors: Console | None) -> int:
    """What the process exits with; with `errors` given, what went wrong is told there."""
    if errors is not None:
        for line in table.closing(results):
            errors.print(line, markup=False, highlight=False, soft_wrap=True)
    return results.status
