"""`esper report`: a finished run as one HTML file."""

from __future__ import annotations

import asyncio
import json as notation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from esper.bench.output.placed import place
from esper.bus.names import NAME
from esper.cli.options import RUNS, AsObject, Keyring, LoggedRun, RunsDir, SameRun, logged
from esper.cli.output.verdict import ending_with

if TYPE_CHECKING:
    from esper.web.finished import Finished

FOUND = 1


def report(
    named: LoggedRun = None,
    run: SameRun = None,
    out: Annotated[Path | None, typer.Option(help="Where the file goes; default: report-<run>.html, here.")] = None,
    runs_dir: RunsDir = RUNS,
    keyring: Keyring = None,
    json: AsObject = False,
) -> None:
    """Write the report of a run, from its log: one file without scripts, to be opened anywhere, and mailed."""
    finished, page = asyncio.run(_read(logged(named, run), runs_dir, keyring))
    checked = finished.checked
    path = out or Path(f"report-{checked.run_id if NAME.fullmatch(checked.run_id) else 'run'}.html")
    place(page, path)
    entries, findings = checked.num_entries, len(checked.findings)
    told = {"report": str(path), "run": checked.run_id, "entries": entries, "findings": findings}
    with ending_with(FOUND if findings else 0):
        typer.echo(notation.dumps(told) if json else f"{path}: {entries} entries, {findings} findings")


async def _read(run: str, runs_dir: Path, keyring: Path | None) -> tuple[Finished, str]:
    from esper.runtime.history import logbook, report_store
    from esper.web.finished import fold
    from esper.web.report import html

    book, keys = await logbook.find(run, runs_dir, keyring)
    opens = keys is not None and bool(keys.roles)
    beside = report_store.opened(await logbook.beside(run, runs_dir, keyring), keys) if keys and opens else ()
    finished = fold(book, keys, beside)
    return finished, html(finished)
