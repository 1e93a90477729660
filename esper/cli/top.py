"""`esper top`: a live run on one screen of a terminal."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from esper.cli.extras import require
from esper.cli.options import NamedRun, SameRun, either
from esper.errors import SettingError


def top(
    named: NamedRun = None,
    run: SameRun = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Publish nothing, whatever key is pressed.")] = False,
) -> None:
    """Watch a live run on one screen, and steer it by keys: workers, seeds, barriers, telemetry, commands."""
    require("esper top", "top")  # what is refused below need not load it, two thirds of a second
    meant = either(named, run)
    for name, is_terminal in (("stdout", sys.stdout.isatty()), ("stdin", os.isatty(0)), ("stderr", os.isatty(2))):
        if not is_terminal:  # keys come by stdin, and the screen is drawn on stderr
            raise SettingError(name, "no terminal", "a terminal; `esper status --json` is for scripts")
    from esper.cli import interrupting

    if status := interrupting.run(_top(meant, read_only)):
        raise typer.Exit(status)


async def _top(run: str | None, read_only: bool) -> int:
    """Exit status: 0 after q, 1 where the screen itself failed."""
    from esper.cli.client import Controller
    from esper.cli.output.quiet import log_to
    from esper.runtime.watching.live import may_publish, reach, watching
    from esper.top.app import NO_KEY, TopApp
    from esper.view.picture import Picture

    found = await reach(run)
    picture = Picture(found.run_id)
    async with AsyncExitStack() as stack:
        stack.enter_context(log_to(Path(os.devnull)))  # a line of the log would tear the screen
        watch = await stack.enter_async_context(watching(found, "top", picture))
        controller = None
        if not read_only and await may_publish(found.run_id):  # by id: a name may be another run's by now
            controller = await stack.enter_async_context(Controller.connect(found.run_id, name="top"))
        why = "--read-only was given" if read_only else NO_KEY
        app = TopApp(picture, watch, controller, read_only=why)
        await watch.along(app.run_async(mouse=False))
    return app.return_code or 0
