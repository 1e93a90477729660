"""The live view of `esper up` and `esper demo`: names are shown as they are, on a terminal and off it."""

from __future__ import annotations

import asyncio
from io import StringIO

from rich.console import Console

from esper.cli.output.dashboard import show, view
from esper.view.picture import Picture
from tests.scripted import cancelled
from tests.sealed import RUN
from tests.view_kit import Stage, beat, seed

ODD = "[red]s0[/x]"


def picture() -> Picture:
    told = Picture(RUN)
    told.note(beat("worker-0", 0, seed(ODD, Stage.SEED_STAGE_TRAINING, site="[bold]"), region="[/r0]"))
    return told


def test_a_name_that_looks_like_markup_is_shown_as_it_is() -> None:
    console = Console(file=StringIO(), width=120)
    with console.capture() as shown:
        console.print(view(picture(), 1.0, "running"))

    assert all(name in shown.get() for name in (ODD, "[bold]", "[/r0]"))


async def test_a_line_where_there_is_no_terminal_shows_it_too() -> None:
    written = StringIO()
    showing = asyncio.create_task(show(picture(), Console(file=written), lambda: "running"))
    while not written.getvalue():
        await asyncio.sleep(0)
    await cancelled(showing)

    assert f"{ODD}=TRAINING" in written.getvalue()
