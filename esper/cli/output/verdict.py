"""The status of a command that says whether something holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def ending_with(status: int) -> Iterator[None]:
    """End the command with it once the block has printed why, also where nobody read that to its end.

    A closed pipe ends other commands with 0, as in `esper tail | head`: for a verdict that would be a yes.
    """
    try:
        yield
    except BrokenPipeError:
        if not status:
            raise
    except SystemExit as ending:  # rich makes one of it
        if not (status and isinstance(ending.__context__, BrokenPipeError)):
            raise
    if status:
        raise typer.Exit(status)
