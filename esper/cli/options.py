"""Arguments and options that several commands have, with the same words of help; and the run that they name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from esper.cli.output.moments import EXPECTED, ZONE
from esper.errors import SettingError

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
AsObject = Annotated[bool, typer.Option("--json", help="One JSON object.")]

LiveRun = Annotated[str | None, typer.Option("--run", help="Name or id of a live run; else ESPER_RUN.")]
NamedRun = Annotated[str | None, typer.Argument(metavar="RUN", help="Name or id of a live run; else ESPER_RUN.")]
SameRun = Annotated[str | None, typer.Option("--run", help="The same as RUN.")]

LoggedRun = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="Name or id of a run, live or kept below --runs-dir; or its folder or log; else ESPER_RUN."
    ),
]
Since = Annotated[str, typer.Option(metavar="WHEN", help=f"From there on, or behind an entry: {EXPECTED}. {ZONE}")]
Until = Annotated[str, typer.Option(metavar="WHEN", help="Up to there, that included.")]

RUNS = Path("runs")
RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Where runs leave their logs.")]
Keyring = Annotated[
    Path | None, typer.Option("--keyring", help="A keyring of the run; default: the one kept beside its log.")
]
AnyKeyring = Annotated[
    Path | None,
    typer.Option("--keyring", help="A keyring of the run, or its public keys; default: the one beside the log."),
]


def either(named: str | None, run: str | None) -> str | None:
    """The run that is named, as RUN or by --run."""
    if named and run and named != run:
        raise SettingError("--run", run, f"the same as RUN, {named!r}, or one of the two")
    return named or run


def logged(named: str | None, run: str | None) -> str:
    """The same, or by ESPER_RUN: of whose log there is."""
    if meant := either(named, run) or os.environ.get("ESPER_RUN"):
        return meant
    raise SettingError("run", "", "the name of a run or of a file, as RUN, by --run or ESPER_RUN")
