"""`esper bench forget`: lets rows begin anew, after a slow-down that was meant."""

from __future__ import annotations

from typing import Annotated

import typer

from esper.bench.history.store import Store as Folder
from esper.bench.machine import this_machine
from esper.cli.bench.report import Store


def forget(
    names: Annotated[list[str], typer.Argument(metavar="ROW...", help="As alarms name them.")], store: Store = None
) -> None:
    """Forget what earlier runs here came to in these rows, so that a slow-down that was meant is no alarm."""
    Folder(store).forget(this_machine().key, names)
