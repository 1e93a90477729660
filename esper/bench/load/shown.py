"""A load on a terminal: tables, bars, and one line where there is no terminal; and the same as figures."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from esper.bench.figures import Figure
from esper.bench.load.latencies import Latencies
from esper.bench.load.results import Result
from esper.bench.load.tally import MAIN, Tally

LEVELS = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
NUM_BARS, BAR_WIDTH = 16, 40
PARTS = {
    "start": "due -> sending begins",
    "added": "due -> Redis has it",
    "accepted": "due -> receipt by coordinator",
    "applied": "due -> receipts of all ranks",
    "global": "due -> in a global aggregate",
    "decided": "due -> named in a commit",
    "round": "proposal -> commit, told",
    "seen": "proposal -> commit, read here",
}


def line(tally: Tally, elapsed_s: float) -> str:
    """How it stands, in one line."""
    name, main = MAIN[tally.kind], tally.main
    quantiles = "  ".join(f"{stat} {_ms(main.quantile(level))}" for stat, level in LEVELS)
    return "  ".join([f"{elapsed_s:6.1f} s", *_counts(tally), f"{name} {quantiles} ms" if main.num else f"{name} -"])


def view(result: Result) -> RenderableType:
    """The whole, with bars."""
    tally = result.tally
    workers = "" if result.num_workers == 1 else f" from {result.num_workers} workers"
    head = Text(f"{tally.kind} load on {result.run_id}: {result.rate:g}/s{workers}, {result.seconds:.1f} s", "bold")
    return Group(head, Text("  ".join(_counts(tally))), _table(tally), *_bars(MAIN[tally.kind], tally.main))


def figures(result: Result) -> Iterator[Figure]:
    """Each latency and each count, as the suite prints figures."""
    row, shape = f"load-{result.tally.kind}", f"{result.rate:g}/s by {result.num_workers}"
    for name, part in result.tally.latencies.items():
        for stat, level in LEVELS:
            yield Figure(row, name, stat, part.quantile(level), "ms", part.num, shape=shape)
    for name, count in result.tally.counts.items():
        yield Figure(row, name, "count", float(count), "", count, shape=shape)


def _counts(tally: Tally) -> list[str]:
    return [f"{name} {count}" for name, count in tally.counts.items()]


def _table(tally: Tally) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("ms", "n", *(stat for stat, _ in LEVELS), ""):
        table.add_column(heading, justify="left" if heading in ("ms", "") else "right", overflow="fold")
    for name, part in tally.latencies.items():
        quantiles = (_ms(part.quantile(level)) for level in (level for _, level in LEVELS))
        table.add_row(name, str(part.num), *quantiles, Text(PARTS.get(name, ""), "dim"))
    return table


def _bars(name: str, part: Latencies) -> Iterator[Text]:
    """Bars as long as their counts; ranges are of equal ratio."""
    rows = list(part.bars(NUM_BARS))
    most = max((count for _, _, count in rows), default=0)
    if rows:
        yield Text(f"\n{name}, ms")
    for low, high, count in rows:
        bar = "#" * -(-count * BAR_WIDTH // most)
        yield Text(f"{_ms(low):>8} to {_ms(high):>8} {count:>8} {bar}")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
