"""A live view of a run in a terminal; elsewhere, a line on each change and every few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from esper.cli.output.cells import cells
from esper.cli.output.format import number
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import short
from esper.leyline.terminal_text import printable
from esper.view.picture import Picture

REFRESH_S = 0.25
LOOK_S = 0.1
LINE_S = 3.0


async def show(picture: Picture, console: Console, doing: Callable[[], str]) -> None:
    """Keep showing the picture, without end. `doing` names what the run is at."""
    began = time.monotonic()
    if not console.is_terminal:
        await _print_lines(picture, console, doing, began)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(view(picture, time.monotonic() - began, doing()), refresh=True)
            await asyncio.sleep(REFRESH_S)


async def _print_lines(picture: Picture, console: Console, doing: Callable[[], str], began: float) -> None:
    """A line every few seconds, and at once where the run is at something else or a seed has changed its stage."""
    shown, due_s = "", 0.0
    while True:
        state = doing() + stages(picture)
        if state != shown or time.monotonic() >= due_s:
            told = line(picture, time.monotonic() - began, doing())
            console.print(told, highlight=False, soft_wrap=True, markup=False)
            shown, due_s = state, time.monotonic() + LINE_S
        await asyncio.sleep(LOOK_S)


def stages(picture: Picture) -> str:
    """Each seed and its stage."""
    states = (seed.state for seed in picture.seeds.ordered)
    return " ".join(f"{state.seed_id}={short(state.stage)}" for state in states) or "-"


def line(picture: Picture, elapsed_s: float, doing: str) -> str:
    """The run in one line."""
    return printable("  ".join([f"{elapsed_s:5.1f} s", doing, *_figures(picture), f"seeds {stages(picture)}"]))


def view(picture: Picture, elapsed_s: float, doing: str) -> RenderableType:
    """The run on one screen."""
    head = Text(f"run {picture.run_id}  {elapsed_s:.0f} s  {doing}", style="bold")
    return Group(head, _workers(picture), _seed_table(picture), Text("  ".join(_figures(picture)[1:])))


def _workers(picture: Picture) -> Table:
    table = Table("worker", "region", "step", "epoch", "loss", "accuracy", "lr", box=None)
    for worker in picture.workers.ordered:
        beat = worker.beat
        paused = " paused" if beat.busy == pb.BusyWith.BUSY_PAUSED else ""
        figures = (beat.loss, beat.accuracy, beat.hyperparameters.get("lr", float("nan")))
        table.add_row(*cells(beat.worker, beat.region, f"{beat.step}{paused}", str(beat.epoch), *map(number, figures)))
    return table


def _seed_table(picture: Picture) -> Table:
    table = Table("seed", "site", "blueprint", "stage", "alpha", box=None)
    for state in (seed.state for seed in picture.seeds.ordered):
        told = (state.seed_id, state.site, state.blueprint_id, short(state.stage), number(state.alpha))
        table.add_row(*cells(*told))
    return table


def _figures(picture: Picture) -> list[str]:
    orders, totals, rounds = picture.orders, picture.flow.totals, picture.rounds
    latency_ms = rounds.latency_ms(50)
    beats = [worker.beat for worker in picture.workers.ordered[:1]]
    position = [f"step {beat.step}  loss {number(beat.loss)}  accuracy {number(beat.accuracy)}" for beat in beats]
    return [
        *(position or ["step -"]),
        f"commands {orders.num_published} published {orders.num_applied} applied"
        f" {sum(orders.rejected.values())} rejected",
        f"packets {totals.counted} -> {totals.regional} -> {totals.global_}",
        f"barriers {rounds.committed}" + ("" if latency_ms is None else f" ({latency_ms:.1f} ms)"),
    ]
