"""`esper verify`: whether a log is what the run wrote: seals, signatures, order, gaps, commits."""

from __future__ import annotations

import asyncio
import json as notation
from dataclasses import asdict

import typer

from esper.cli.options import RUNS, AnyKeyring, AsJson, LoggedRun, RunsDir, SameRun, logged
from esper.cli.output.verdict import ending_with
from esper.leyline.terminal_text import printable
from esper.runtime.history import logbook
from esper.runtime.history.audit import Audit, Finding, audit

FOUND = 1


def verify(
    named: LoggedRun = None,
    run: SameRun = None,
    keyring: AnyKeyring = None,
    runs_dir: RunsDir = RUNS,
    json: AsJson = False,
) -> None:
    """Check a log, one line for each finding, with its entry id. Status 0: nothing found; 1: something; 2: no log."""
    book, keys = asyncio.run(logbook.find(logged(named, run), runs_dir, keyring))
    result = audit(book, keys)
    with ending_with(FOUND if result.findings else 0):
        for each in (*result.notes, *result.findings):
            typer.echo(notation.dumps(asdict(each)) if json else line(each))
        if result.release and not json:
            typer.echo(printable(result.release))
        typer.echo(notation.dumps(row(result)) if json else summary(result))


def line(finding: Finding) -> str:
    """One for a person."""
    word = "note" if finding.is_note else "found"
    return printable(f"{word:5} {finding.stream:9} {finding.entry_id:20} {finding.kind}: {finding.detail}")


def row(result: Audit) -> dict[str, object]:
    """The last line, for a machine."""
    return {
        "run": result.run_id,
        "entries": result.num_entries,
        "signatures": result.num_signatures,
        "seals_checked": result.seals_checked,
        "findings": len(result.findings),
        "notes": len(result.notes),
        "release": result.release,
    }


def summary(result: Audit) -> str:
    """The last line, for a person: what was checked, and what was not."""
    seals = "every seal" if result.seals_checked else "no seal (there is no secret keyring), structure alone"
    unsigned = "no signature (there is no command)" if result.has_public_keys else "no signature (no public key)"
    signatures = f"{result.num_signatures} signatures" if result.num_signatures else unsigned
    told = f"run {result.run_id}: {result.num_entries} entries, {seals} and {signatures} checked"
    return printable(f"{told}: {len(result.findings)} findings, {len(result.notes)} notes")
