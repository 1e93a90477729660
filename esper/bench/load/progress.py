"""How a load stands while it runs: live on a terminal, a line a second elsewhere."""

from __future__ import annotations

import asyncio
import time

from rich.console import Console
from rich.live import Live

from esper.bench.load import shown
from esper.bench.load.arrivals import Arrivals
from esper.bench.load.results import Result

REFRESH_S, LINE_S = 0.25, 1.0


async def show(result: Result, arrivals: Arrivals, console: Console) -> None:
    """Without end. On a terminal it is gone afterwards: the whole is printed then."""
    if not console.is_terminal:
        while True:
            await asyncio.sleep(LINE_S)
            elapsed_s = time.perf_counter() - arrivals.began_s
            console.print(shown.line(result.tally, elapsed_s), markup=False, highlight=False, soft_wrap=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            result.seconds = min(arrivals.seconds, time.perf_counter() - arrivals.began_s)
            live.update(shown.view(result), refresh=True)
            await asyncio.sleep(REFRESH_S)
