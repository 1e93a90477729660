"""`esper ps`, `esper down` and `esper restart`: asks of whoever keeps a run going on this machine."""

from __future__ import annotations

import json as notation
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from esper.bus import runs
from esper.cli.options import AsJson, SameRun, either
from esper.cli.output.width import columns
from esper.errors import SettingError
from esper.runtime.crew import control

KILLED = 1
LOOK_S = 0.05
GONE_S = 30.0
LATE = "on a full disk, once there is room below its runs_dir"
STARTS = "`esper up -f run.toml` starts one"

Run = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="Name or id of a run that `esper up` keeps going; else ESPER_RUN, or the one."),
]


def ps(named: Run = None, run: SameRun = None, json: AsJson = False) -> None:
    """List the processes of a run: what each is at, how often it was started again, and its memory."""
    wanted = either(named, run)
    if not (wanted or os.environ.get("ESPER_RUN") or kept_here()):
        typer.echo(f"no run is kept going here: {STARTS}", err=True)
        return
    rows = list(control.ask(keeper_of(live(wanted)), {"do": "ps"}, 10.0))
    if json:
        for row in rows:
            typer.echo(notation.dumps(row))
        return
    for line in table(rows):
        typer.echo(line)


def down(named: Run = None, run: SameRun = None, json: AsJson = False) -> None:
    """End a run in order: trainers, aggregators once they have folded what was said, coordinators, Redis."""
    record = live(either(named, run))
    killed = not is_parting(record) and told(control.ask(path_of(record), {"do": "down"}), json)
    deadline = time.monotonic() + GONE_S
    while runs.is_held(record.directory / runs.LOCK) and time.monotonic() < deadline:
        time.sleep(LOOK_S)  # its log is kept, and its Redis ends
    if left := runs.is_held(record.directory / runs.LOCK):
        typer.echo(
            f"esper: {record.run_id} still keeps its log after {GONE_S:g} s, and ends by itself then: {LATE}", err=True
        )
    if killed or left:
        raise typer.Exit(KILLED)


def restart(
    role: Annotated[str, typer.Argument(help="A role, such as regional, or a name as `esper ps` shows it.")],
    named: Run = None,
    run: SameRun = None,
    json: AsJson = False,
) -> None:
    """Start the processes of a role anew, one after the other: each once the one before is ready."""
    told(control.ask(keeper_of(live(either(named, run))), {"do": "restart", "role": role}), json)


def live(run: str | None) -> runs.RunRecord:
    """The run that is meant; without a name the only one that is kept going here."""
    if run or (run := os.environ.get("ESPER_RUN", "")):
        return runs.resolve(run)
    if len(kept := kept_here()) != 1:
        names = ", ".join(record.run_id for record in kept) or f"none: {STARTS}"
        raise SettingError("run", "", f"one of those that are kept going here ({names})")
    return kept[0]


def kept_here() -> list[runs.RunRecord]:
    """Whatever `esper up` keeps going on this machine."""
    return [record for record in runs.list_live() if path_of(record).exists() or is_parting(record)]


def keeper_of(record: runs.RunRecord) -> Path:
    """Where whoever keeps it going answers. ControlError: nothing is left of it but its log, which is to be kept."""
    if is_parting(record):
        raise control.ControlError(f"{record.run_id} has ended its processes, and ends once its log is kept: {LATE}")
    return path_of(record)


def path_of(record: runs.RunRecord) -> Path:
    return record.directory / control.NAME


def is_parting(record: runs.RunRecord) -> bool:
    """Whether nothing is left of it but its log."""
    return (record.directory / runs.PARTING).exists()


def told(notes: Iterator[dict[str, Any]], as_json: bool) -> bool:
    """Print what happens; whether anything had to be killed."""
    from esper.cli.up import sentence

    killed = False
    for note in notes:
        killed |= note["event"] == "process.killed"
        typer.echo(notation.dumps(note) if as_json else sentence(note))
    return killed


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Columns wide enough for what stands in them."""
    head = ("NAME", "ROLE", "STATE", "PID", "RESTARTS", "RSS", "LAST END")
    return columns([head, *map(cells_of, rows)])


def cells_of(row: dict[str, Any]) -> tuple[str, ...]:
    rss = f"{row['rss_bytes'] / (1 << 20):.0f} MiB"
    pid = "-" if row["pid"] is None else str(row["pid"])
    return row["name"], row["role"], row["state"], pid, str(row["restarts"]), rss, row["last_end"] or "-"
