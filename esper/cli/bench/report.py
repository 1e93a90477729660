"""`esper bench report`: a run's results as a page, or as Markdown, or told to a live run."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from esper.bench.output.document import Document, read
from esper.bench.output.placed import place

OUT = Path("bench/out")
NAME = "report.html"

Store = Annotated[
    Path | None, typer.Option("--store", help="Folder of earlier runs; else $XDG_STATE_HOME/esper/bench.")
]
Redis = Annotated[str | None, typer.Option("--redis", metavar="URL", help="Of the Redis that --run is on.")]
Run = Annotated[str | None, typer.Option("--run", help="Tell each figure to this live run, as a telemetry packet.")]
Keyring = Annotated[Path | None, typer.Option(help="A worker's keyring of --run; default: an embedded run's own.")]
Region = Annotated[str, typer.Option(help="Of --run, whose aggregators fold the packets; default: its first.")]


def report(
    results: Annotated[
        Path, typer.Option("--from-results", metavar="FILE", help="A report.json of `esper bench run --out DIR`.")
    ] = OUT / "report.json",
    out: Annotated[Path | None, typer.Option(help="Default: report.html beside the results.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown, to --out or to stdout.")] = False,
    store: Store = None,
    redis: Redis = None,
    run: Run = None,
    keyring: Keyring = None,
    region: Region = "",
) -> None:
    """Write the report of a run that was measured before."""
    document = read(results)
    if markdown:
        from esper.bench.output.markdown import page as text

        put(text(document), out)
    else:
        target = out or results.parent / NAME
        save(document, target, store)
        typer.echo(str(target))
    if run is not None or redis is not None:
        publish_figures(document, run, redis, keyring, region)


def save(document: Document, path: Path, store: Path | None) -> None:
    """The page, with what the store has of an equal machine."""
    from esper.bench.history.store import Store as Folder
    from esper.bench.report.page import html

    put(html(document, Folder(store).sessions(document.results.machine.key)), path)


def put(text: str, path: Path | None) -> None:
    """Into a file, whole, whose folder is made where it isn't there; else to stdout."""
    if path is None:
        typer.echo(text, nl=False)
        return
    place(text, path)


def publish_figures(document: Document, run: str | None, redis: str | None, keyring: Path | None, region: str) -> None:
    """One packet a figure, on the region's telemetry, as far as aggregates have names for them."""
    from esper.bench.output.telling import tell

    number = asyncio.run(tell(document.results.figures, run, redis, keyring, region))
    left = len(document.results.figures) - number
    more = f", {left} figures left out: an aggregate has no more names" if left else ""
    print(f"{number} packets told{more}", file=sys.stderr)
