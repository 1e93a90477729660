"""A live view of a run in a terminal; elsewhere, a line on each change and every few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from esper.cli.format import number
from esper.cli.summary import Collected, barriers, commands
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import short

REFRESH_S = 0.25
LOOK_S = 0.1
LINE_S = 3.0


async def show(collected: Collected, console: Console, doing: Callable[[], str]) -> None:
    """Keep showing what was collected, without end. `doing` names what the run is at."""
    began = time.monotonic()
    if not console.is_terminal:
        await _print_lines(collected, console, doing, began)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(view(collected, time.monotonic() - began, doing()), refresh=True)
            await asyncio.sleep(REFRESH_S)


async def _print_lines(collected: Collected, console: Console, doing: Callable[[], str], began: float) -> None:
    """A line every few seconds, and at once where the run is at something else or a seed has changed its stage."""
    shown, due_s = "", 0.0
    while True:
        state = doing() + stages(collected)
        if state != shown or time.monotonic() >= due_s:
            console.print(line(collected, time.monotonic() - began, doing()), highlight=False, soft_wrap=True)
            shown, due_s = state, time.monotonic() + LINE_S
        await asyncio.sleep(LOOK_S)


def stages(collected: Collected) -> str:
    """Each seed and its stage."""
    return " ".join(f"{state.seed_id}={short(state.stage)}" for state in _seeds(collected)) or "-"


def line(collected: Collected, elapsed_s: float, doing: str) -> str:
    """The run in one line."""
    return "  ".join([f"{elapsed_s:5.1f} s", doing, *_figures(collected), f"seeds {stages(collected)}"])


def view(collected: Collected, elapsed_s: float, doing: str) -> RenderableType:
    """The run on one screen."""
    head = Text(f"run {collected.run_id}  {elapsed_s:.0f} s  {doing}", style="bold")
    return Group(head, _workers(collected), _seed_table(collected), Text("  ".join(_figures(collected)[1:])))


def _workers(collected: Collected) -> Table:
    table = Table("worker", "region", "step", "epoch", "loss", "accuracy", "lr", box=None)
    for beat in collected.newest:
        paused = " paused" if beat.busy == pb.BusyWith.BUSY_PAUSED else ""
        figures = (beat.loss, beat.accuracy, beat.hyperparameters.get("lr", float("nan")))
        table.add_row(
            beat.worker, beat.region, f"{beat.step}{paused}", str(beat.epoch), *(number(value) for value in figures)
        )
    return table


def _seed_table(collected: Collected) -> Table:
    table = Table("seed", "site", "blueprint", "stage", "alpha", box=None)
    for state in _seeds(collected):
        table.add_row(state.seed_id, state.site, state.blueprint_id, short(state.stage), number(state.alpha))
    return table


def _seeds(collected: Collected) -> list[pb.SeedState]:
    """As the first worker shows them; all ranks change stage at the same step."""
    return [state for beat in collected.newest[:1] for state in beat.seeds]


def _figures(collected: Collected) -> list[str]:
    counted = commands(collected.num_published, collected.receipts)
    rounds = barriers(collected.decisions)
    latency = rounds["latency_ms"]["p50"]
    beats = collected.newest[:1]
    position = [f"step {beat.step}  loss {number(beat.loss)}  accuracy {number(beat.accuracy)}" for beat in beats]
    return [
        *(position or ["step -"]),
        f"commands {counted['published']} published {counted['applied']} applied"
        f" {sum(counted['rejected'].values())} rejected",
        f"packets {collected.totals.counted} -> {collected.totals.regional} -> {collected.totals.global_}",
        f"barriers {rounds['committed']}" + ("" if latency is None else f" ({latency:.1f} ms)"),
    ]
