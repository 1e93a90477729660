"""`esper up`: the processes of the demo without its scripts, until interrupted."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from esper.cli.dashboard import show
from esper.cli.demo import FAILED
from esper.cli.fleet import fleet, interruptible
from esper.cli.quiet import log_to
from esper.cli.witness import witness
from esper.errors import BusError
from esper.runtime.supervise import ProcessDiedError


def up(
    name: Annotated[str, typer.Option(help="Name by which other commands find the run.")] = "demo",
    runs_dir: Annotated[Path, typer.Option(help="Where the run's logs go.")] = Path("runs"),
) -> None:
    """Start a run that goes on until interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        try:
            interruptible(_up(name, runs_dir))
        except (ProcessDiedError, BusError) as error:
            typer.echo(f"esper: {error}", err=True)
            raise typer.Exit(FAILED) from None


async def _up(name: str, runs_directory: Path) -> None:
    console = Console()
    async with fleet(name, runs_directory) as run:
        console.print(f"run {run.record.run_id}; in another terminal: esper status --run {name}", highlight=False)
        with log_to(run.directory / "logs" / "up.log"):
            await run.start_servers()
            await run.start_trainers()
            async with witness(run.record) as seen:
                screen = asyncio.create_task(show(seen.collected, console, lambda: "running"))
                try:
                    with run.naming_redis():
                        await run.supervisor.guard(seen.along(asyncio.Event().wait()))
                finally:
                    screen.cancel()
                    await asyncio.gather(screen, return_exceptions=True)
