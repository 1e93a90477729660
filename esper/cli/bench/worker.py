"""`esper bench worker` and `esper bench sum`: loads a running system from outside, and folds what several found."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from esper.bench.load import progress, results, shown
from esper.bench.load.arrivals import Arrivals
from esper.bench.load.loop import close_books, drive
from esper.bench.load.settings import Load, checked_kind
from esper.bench.load.tally import Tally
from esper.bench.output import lines
from esper.cli.options import LiveRun
from esper.errors import EsperError

UNANSWERED, INTERRUPTED = 1, 130
FAMILY = "load"

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line at the end, and nothing else.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it down, for `esper bench sum`.")]


def worker(
    kind: Annotated[str, typer.Option(help="command, telemetry or barrier.")],
    rate: Annotated[float, typer.Option(help="Requests a second; 0 with barrier: only watch.")] = 10.0,
    seconds: Annotated[float, typer.Option(help="How long to make requests.")] = 10.0,
    redis: Annotated[str | None, typer.Option(metavar="URL", help="Of the run's Redis; else ESPER_REDIS_URL.")] = None,
    run: LiveRun = None,
    keyring: Annotated[
        Path | None, typer.Option(help="Role keyring; else ESPER_KEYRING, or the embedded run's.")
    ] = None,
    region: Annotated[str, typer.Option(help="Of telemetry; else the first that a worker is in.")] = "",
    name: Annotated[str, typer.Option(help="What it is called on the wire; several may share it.")] = "load",
    patience: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the last answers.")] = 10.0,
    out: Out = None,
    json: Json = False,
) -> None:
    """Ask a running system at a steady rate, and print how long the answers took; Ctrl-C ends it with what there is.

    Requests are made on schedule, whether or not those before were answered, and each latency counts from the moment
    when the request was due: what a slow system delays is in the figures (no coordinated omission). Commands are
    emergencies of level NOTICE, which change nothing; packets have metric names of their own. Status 1: no answer.
    """
    load = Load(checked_kind(kind), rate, seconds, run, redis, keyring, region, name, patience)
    done = asyncio.run(_loaded(load, Console(stderr=json)))
    try:
        if out is not None:
            done.result.write(out)
    finally:  # whatever became of the file
        tell(done.result, json)
    if done.error is not None:
        raise done.error
    if done.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if done.result.tally.main.num or not rate else UNANSWERED)


def total(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What `esper bench worker --out` wrote.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the sum, of one run and kind.")
    ] = None,
    json: Json = False,
) -> None:
    """Fold what several workers found: counts and bins add up, so the quantiles are those of all requests together."""
    sums = results.summed(map(results.read, files))
    if out is not None:
        if len(sums) != 1:
            raise typer.BadParameter(f"{len(sums)} runs or kinds; expected files of one", param_hint="--out")
        sums[0].write(out)
    for result in sums:
        tell(result, json)


def tell(result: results.Result, json: bool) -> None:
    """Print the whole of it."""
    if not json:
        Console().print(shown.view(result))
        return
    for figure in shown.figures(result):
        typer.echo(lines.as_line(figure, FAMILY))


@dataclass(frozen=True, slots=True)
class Done:
    """What a load came to, whatever ended it."""

    result: results.Result
    interrupted: bool
    error: EsperError | None


async def _loaded(load: Load, console: Console) -> Done:
    """Load the run; the first Ctrl-C or SIGTERM ends it with what there is by then."""
    from esper.bench.load.opened import opened  # the client, which `esper bench list` does without

    stopping, loop, error = asyncio.Event(), asyncio.get_running_loop(), None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    tally = Tally(load.kind)
    async with opened(load, tally) as (run_id, work):
        arrivals = Arrivals(load.rate, load.seconds, time.perf_counter())
        result = results.Result(run_id, load.rate, 0.0, tally)
        showing = asyncio.create_task(progress.show(result, arrivals, console))
        try:
            await drive(arrivals, work, stopping, load.patience_s)
        except EsperError as met:
            error = met
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        close_books(result, arrivals, work, time.perf_counter())
    return Done(result, stopping.is_set(), error)
