"""`esper export`: carries what the global tier says to Prometheus, TensorBoard or a file of JSON lines."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from esper.bus.names import checked_name
from esper.cli.exporting import FileKind, exporting, follow, for_scrapes, into_files
from esper.cli.options import NamedRun, SameRun, either
from esper.errors import SettingError
from esper.narset.running import checked_bounds
from esper.runtime import access
from esper.runtime.exporters.lines import MOST_BYTES, NUM_KEPT
from esper.runtime.operations import metrics
from esper.runtime.operations.upkeep import HealthEndpoint
from esper.runtime.operations.vitals import seen
from esper.runtime.settings import Settings

PORT = 9464

app = typer.Typer(
    name="export", add_completion=False, no_args_is_help=True, help="Carry the telemetry of the global tier elsewhere."
)

Run = Annotated[str, typer.Argument(help="Name or id of a live run.")]
Once = Annotated[bool, typer.Option("--once", help="End once all that is there is carried over.")]


@app.command()
def prometheus(
    named: NamedRun = None,
    run: SameRun = None,
    host: Annotated[str, typer.Option(help="Address to answer at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to answer at; 0: a free one.")] = PORT,
    buckets: Annotated[str, typer.Option(help="Upper ends in base units, as 0.01,0.1,1; else 1e-5 to 5e4.")] = "",
    name: Annotated[str, typer.Option(help="Under which it keeps its place in Redis.")] = "default",
) -> None:
    """Answer scrapes at /metrics, until interrupted."""
    asyncio.run(_prometheus(either(named, run), (host, port), checked_bounds(buckets), checked_name("name", name)))


@app.command()
def tensorboard(
    run: Run,
    folder: Annotated[Path, typer.Argument(help="Event files go into a folder of the run's below this one.")],
    once: Once = False,
) -> None:
    """Write event files, until interrupted."""
    asyncio.run(_files(run, "tensorboard", folder, once))


@app.command()
def jsonl(
    run: Run,
    file: Annotated[Path, typer.Argument(help="Is appended to: one aggregate a line.")],
    once: Once = False,
    most_mb: Annotated[int, typer.Option(min=1, help="Set it aside once it is larger (MiB).")] = MOST_BYTES >> 20,
    keep: Annotated[int, typer.Option(min=1, help="How many of those set aside to keep.")] = NUM_KEPT,
) -> None:
    """Append JSON lines to a file, until interrupted."""
    asyncio.run(_files(run, "jsonl", file, once, most_bytes=most_mb << 20, num_kept=keep))


async def _prometheus(run: str | None, address: tuple[str, int], bounds: tuple[float, ...], name: str) -> None:
    found = await access.find(run)
    async with for_scrapes(found, bounds, name) as sink, exporting(found, sink) as export:
        endpoint = HealthEndpoint("exporter", Settings(name=name), found)
        follow(export, found.run_id, endpoint.registry, endpoint.health)
        server = await metrics.listen(*address, endpoint.registry, endpoint.health, "--host, --port")
        async with seen(found.redis_url, endpoint.health), server:
            port = server.sockets[0].getsockname()[1]
            print(f"http://{address[0]}:{port}/metrics", flush=True)
            await export.run(asyncio.Event())


async def _files(run: str, kind: FileKind, path: Path, once: bool, **limits: int) -> None:
    found = await access.find(run)
    try:
        with into_files(kind, path, found.run_id, **limits) as sink:
            async with exporting(found, sink) as export:
                await export.run(asyncio.Event(), until_idle=once)
    except OSError as error:  # a full disk, or a folder in a file's place: what is kept is whole, and gone on from
        raise SettingError("path", str(path), f"a place that can be written to ({error.strerror})") from error
    print(f"{export.num_written} aggregates written", file=sys.stderr)
