"""`esper tail`: follows what a run says, at one tier, until interrupted."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import Annotated

import typer


def tail(
    run: Annotated[str | None, typer.Option(help="Name or id of a live run; else ESPER_RUN.")] = None,
    tier: Annotated[str, typer.Option(help="worker, region, global or receipts.")] = "global",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    since: Annotated[str, typer.Option(help="Entry id to read after; 0: all there is; $: only what comes.")] = "$",
    count: Annotated[int, typer.Option(min=0, help="End after this many; 0: never.")] = 0,
) -> None:
    """Follow telemetry or receipts of a live run."""
    asyncio.run(_tail(run, tier, since, count, json))


async def _tail(run: str | None, tier: str, since: str, count: int, as_json: bool) -> None:
    from esper.cli import format as form
    from esper.client import Controller

    write = form.as_json if as_json else form.line
    shown = 0
    async with AsyncExitStack() as stack:
        follower = await stack.enter_async_context(Controller.connect(run, name="tail"))
        messages = await stack.enter_async_context(aclosing(follower.telemetry(tier, since)))
        async for opened in messages:
            print(write(opened), flush=True)
            shown += 1
            if shown == count:
                return
