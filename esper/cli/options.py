"""Arguments and options that several commands have, with the same words of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
AsObject = Annotated[bool, typer.Option("--json", help="One JSON object.")]

LiveRun = Annotated[str | None, typer.Option("--run", help="Name or id of a live run; else ESPER_RUN.")]
NamedRun = Annotated[str | None, typer.Argument(metavar="RUN", help="Name or id of a live run; else ESPER_RUN.")]

LoggedRun = Annotated[
    str, typer.Argument(help="Name or id of a run, live or kept below --runs-dir; or an exported file.")
]
RUNS = Path("runs")
RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Where runs leave their logs.")]
Keyring = Annotated[
    Path | None, typer.Option("--keyring", help="A keyring of the run; default: the one kept beside its log.")
]
AnyKeyring = Annotated[
    Path | None,
    typer.Option("--keyring", help="A keyring of the run, or its public keys; default: the one beside the log."),
]
