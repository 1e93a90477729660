"""`esper demo`: the whole system on this machine, steered by two scripts, and a summary of what it did."""

from __future__ import annotations

import asyncio
import contextlib
import json as notation
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from esper.cli import interrupting
from esper.cli.output.dashboard import show
from esper.cli.output.terminal import console
from esper.cli.output.verdict import ending_with
from esper.cli.running.demo_run import DemoRun, demo_run
from esper.cli.running.fleet import example_file
from esper.cli.running.summary import shortcomings, summary
from esper.cli.running.watcher import Watcher, watcher
from esper.errors import EsperError
from esper.runtime.crew.runfile import RunFile

FAILED = 1
MOST_WORKERS = 32  # the digits are 33 batches
FOLD_S = 10.0  # for the last packets to come through both tiers
SCRIPTS = {"controller": "esper.examples.grow_digits", "hostile": "esper.examples.hostile"}


class DemoFailedError(EsperError):
    """It did not do all that it is to show."""


@dataclass
class Progress:
    """What the demo is at, for the screen and for its errors."""

    doing: str = "starting"


def demo(
    seconds: Annotated[float, typer.Option(min=1.0, help="Give up after this long.")] = 120.0,
    runs_dir: Annotated[Path, typer.Option(help="Where the run's logs and summary go.")] = Path("runs"),
    workers: Annotated[int, typer.Option(min=1, max=MOST_WORKERS, help="How many ranks train.")] = 2,
    json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object; the rest to stderr.")] = False,
) -> None:
    """Run the whole system on this machine, and show what it did."""
    content, path, failure = interrupting.run(_demo(demo_file(runs_dir, workers), seconds, json))
    with ending_with(FAILED if failure else 0):
        try:
            _close(content, path, json)
        finally:
            if failure:
                print(f"esper: {failure}", file=sys.stderr)


def demo_file(runs_directory: Path, workers: int) -> RunFile:
    """What `esper up` shows as its example, with so many ranks, in no region without one."""
    example = example_file(name="demo", runs_dir=runs_directory)
    trainer = example.trainer.model_copy(update={"count": workers})
    return example.model_copy(update={"trainer": trainer, "regions": example.regions[:workers]})


async def _demo(read: RunFile, seconds: float, as_json: bool) -> tuple[dict[str, Any], Path, str]:
    """What it did, where that is to be written, and why it failed; empty: it did not."""
    began = time.monotonic()
    try:
        with console(sys.stderr if as_json else sys.stdout) as screen:
            async with demo_run(read, SCRIPTS) as run, watcher(run.fleet.record) as seen:
                failure = await _played(run, seen, screen, seconds)
                content = summary(seen.collected, wall_s=time.monotonic() - began, failure=failure)
                if failure := failure or "; ".join(shortcomings(seen.collected)):
                    raise DemoFailedError(failure)
    except DemoFailedError as error:
        failure = str(error)
    return content, run.fleet.directory / "summary.json", failure


def _close(content: dict[str, Any], path: Path, as_json: bool) -> None:
    """Say what it did, now that nothing is left that a terminal could hold up."""
    kept = f"{path}"
    try:
        path.write_text(notation.dumps(content, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        kept = f"{path} can't be written: {error.strerror}"
    if as_json:
        print(notation.dumps(content, allow_nan=False))
    console = Console(stderr=as_json)
    console.print(closing_table(content))
    console.print(kept, highlight=False, soft_wrap=True, markup=False)
    if content["ok"]:
        report = f"its report as a page: esper report {path.parent}"
        console.print(report, highlight=False, soft_wrap=True, markup=False)


async def _played(run: DemoRun, seen: Watcher, console: Console, seconds: float) -> str:
    """Why it failed; empty: it did not."""
    progress = Progress()
    screen = asyncio.create_task(show(seen.picture, console, lambda: progress.doing))
    try:
        async with asyncio.timeout(seconds):
            await run.guard(seen.along(_play(run, seen, progress)))
    except TimeoutError:
        return f"the demo took longer than {seconds:g} s; it was at: {progress.doing}"
    except EsperError as error:
        return str(error)
    finally:
        screen.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await screen
    return ""


async def _play(run: DemoRun, seen: Watcher, progress: Progress) -> None:
    """The main job, from the first process to the last packet."""
    run.start()
    run.crew.begin("controller")  # it waits for the workers itself, and comes up meanwhile
    progress.doing = "waiting for the workers"
    await seen.until(lambda collected: len(collected.newest) == run.fleet.read.trainer.count)
    run.crew.begin("hostile")
    progress.doing = "growing seeds, refusing hostile commands"
    for script in SCRIPTS:
        await run.crew.done(script)
    progress.doing = "ending"
    run.ask_trainers_to_end()
    await seen.until(lambda collected: len(collected.reports) == run.fleet.read.trainer.count)
    with contextlib.suppress(TimeoutError):  # what is missing then is said by the summary
        async with asyncio.timeout(FOLD_S):
            await seen.until(lambda collected: collected.complete)


def closing_table(content: dict[str, Any]) -> Table:
    """What the run did, as it stands in summary.json."""
    table = Table(title=f"run {content['run']}", show_header=False)
    for name, value in rows(content):
        table.add_row(name, value)
    return table


def rows(content: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and value of each line of the closing table."""
    accuracy, told, rounds = content["accuracy"], content["telemetry"], content["barriers"]
    published, applied = content["commands"]["published"], content["commands"]["applied"]
    refused = ", ".join(f"{count} {reason}" for reason, count in content["commands"]["rejected"].items()) or "none"
    latency = rounds["latency_ms"]
    return [
        ("ok", "yes" if content["ok"] else "no"),
        ("wall time", f"{content['wall_s']:.1f} s"),
        ("steps, epochs", f"{content['steps']}, {content['epochs']} on {content['world_size']} workers"),
        ("accuracy", f"{_figure(accuracy['host_before'])} host alone, {_figure(accuracy['final'])} at the end"),
        *((f"seed {seed['id']}", _grown(seed)) for seed in content["seeds"]),
        ("commands", f"{published} published, {applied} applied"),
        ("not applied", refused),
        ("packets", f"{told['packets']} made, {told['counted']} counted, {told['shed']} shed"),
        ("reduced to", f"{told['regional']} regional, {told['global']} global"),
        ("barriers", f"{rounds['committed']} committed, {rounds['aborted']} aborted"),
        ("barrier latency", f"p50 {_figure(latency['p50'])} ms, p99 {_figure(latency['p99'])} ms"),
        ("replicas equal", "yes" if content["replicas_equal"] else "no"),
        ("parameters", content["parameter_digest"][:16]),
    ]


def _grown(seed: dict[str, Any]) -> str:
    gain = seed["paired_gain"]
    text = f"{seed['stage']} ({seed['blueprint']} at {seed['site']})"
    return text if gain is None else f"{text}, gain {gain['mean']:.4f} [{gain['low']:.4f}, {gain['high']:.4f}]"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
