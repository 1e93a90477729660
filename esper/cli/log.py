"""`esper log`: a run's log as a file, sealed as it was, to be verified and replayed anywhere."""

from __future__ import annotations

import asyncio
import json as notation
import sys
from pathlib import Path
from typing import Annotated

import typer

from esper.cli.options import RUNS, Keyring, LoggedRun, RunsDir, SameRun, logged
from esper.errors import SettingError
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.runtime.history import logbook


def log(
    named: LoggedRun = None,
    run: SameRun = None,
    out: Annotated[Path | None, typer.Option(help="Where the log goes; default: to the terminal or pipe.")] = None,
    public: Annotated[
        Path | None, typer.Option(help="Also write the public keys, which check the controller's signatures alone.")
    ] = None,
    runs_dir: RunsDir = RUNS,
    keyring: Keyring = None,
    json: Annotated[bool, typer.Option("--json", help="What was written as one JSON object, with --out.")] = False,
) -> None:
    """Export commands, optimizer commands, decisions, receipts and emergencies of a run, one JSON object a line."""
    book, keys = asyncio.run(logbook.find(logged(named, run), runs_dir, keyring))
    if public is not None:
        if keys is None:
            raise SettingError("--public", str(public), "a keyring of the run to take the public keys from (--keyring)")
        RoleKeyring(keys.run_id, (), keys.validities, {}, {}, keys.public_keys).save(public)
    if out is None:
        sys.stdout.buffer.writelines(book.lines())
        sys.stdout.buffer.flush()
        return
    try:
        logbook.write(book, out)
    except OSError as error:
        raise SettingError("--out", str(out), f"a place that can be written to ({error.strerror})") from None
    if json:
        counts = {name: len(entries) for name, entries in book.streams.items()}
        typer.echo(notation.dumps({"log": str(out), "run": book.run_id, "entries": counts}))
        return
    told = ", ".join(f"{len(entries)} {name}" for name, entries in book.streams.items())
    typer.echo(f"{out}: run {book.run_id}, {told}")
