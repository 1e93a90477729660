"""`esper tail`: what a run says, at one tier: as it comes, or what was said before."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from esper.cli.options import AsJson, NamedRun, SameRun, Since, Until, either
from esper.runtime import gc_policy

if TYPE_CHECKING:
    from esper.cli.output.filters import Filter
    from esper.cli.output.passages import Passage
    from esper.leyline.seal import Opened

Tier = Annotated[str, typer.Option(help="worker (telemetry), region (regional), global, receipts or state.")]
Source = Annotated[str, typer.Option(metavar="GLOB", help="Only of workers, regions or seeds like worker-*.")]
Level = Annotated[str, typer.Option(help="Only this and above: debug, info, warning, error or critical.")]
Metric = Annotated[str, typer.Option(metavar="GLOB", help="Only metrics like loss*.")]
Last = Annotated[int | None, typer.Option("-n", "--last", min=1, help="The newest so many, and end.")]
Follow = Annotated[
    bool | None,
    typer.Option("--follow/--no-follow", "-f", help="Go on with what comes; without -n and --until it does."),
]


def tail(
    named: NamedRun = None,
    run: SameRun = None,
    tier: Tier = "global",
    source: Source = "",
    level: Level = "",
    metric: Metric = "",
    since: Since = "",
    until: Until = "",
    last: Last = None,
    follow: Follow = None,
    count: Annotated[int, typer.Option(min=0, help="End after this many; 0: never.")] = 0,
    json: AsJson = False,
) -> None:
    """Follow telemetry, receipts or states of a live run. With --until it ends there."""
    with gc_policy.loading("opentelemetry"):
        from esper.cli.output.filters import Filter
        from esper.cli.output.passages import Passage

    follows = (last is None and not until) if follow is None else follow
    passage = Passage.of(since, until, last, follows, time.time())
    asyncio.run(_tail(either(named, run), tier, passage, Filter(source, level, metric), Printing(count, json)))


@dataclass
class Printing:
    """Prints messages, so many at most."""

    count: int
    as_json: bool
    num_shown: int = 0

    def show(self, opened: Opened) -> bool:
        """Print it; False: it was the last one."""
        from esper.cli.output import format as form

        print(form.as_json(opened) if self.as_json else fitting(form.line(opened, time.time())), flush=True)
        self.num_shown += 1
        return self.num_shown != self.count


async def _tail(run: str | None, tier: str, passage: Passage, wanted: Filter, printing: Printing) -> None:
    from esper.cli.client import Controller, access, connect
    from esper.cli.output.passages import Reading

    found = await access.find(run)
    async with AsyncExitStack() as stack:
        follower = await stack.enter_async_context(Controller.connect(run, name="tail"))
        redis = await stack.enter_async_context(connect.reader(found.redis_url))
        reading = Reading(redis, follower.observer, await follower.streams(tier), wanted.left)
        messages = await stack.enter_async_context(aclosing(reading.messages(passage)))
        async for opened in messages:
            if not printing.show(opened):
                return


def fitting(line: str) -> str:
    """Folded between two figures to the width of a terminal, below what follows the time; whole elsewhere."""
    return folded(line, shutil.get_terminal_size().columns) if sys.stdout.isatty() else line


def folded(line: str, width: int) -> str:
    """Lines of at most this many characters, as far as what stands between two spaces and two spaces allows."""
    first, *rest = line.split("  ")
    lines, indent = [first], " " * (len(first) + 2)
    for part in rest:
        if len(lines[-1]) + 2 + len(part) <= width or lines == [first]:
            lines[-1] += f"  {part}"
        else:
            lines.append(indent + part)
    return "\n".join(lines)
