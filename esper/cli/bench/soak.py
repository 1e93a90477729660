"""`esper bench soak`: trains for hours while seeds come and go, and says what drifted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from esper.bench.effort import EFFORTS, Effort
from esper.bench.figures import Figure
from esper.bench.output import lines, table
from esper.bench.output.document import Document, write
from esper.bench.row import Measurement
from esper.cli.bench.report import NAME, save

if TYPE_CHECKING:
    from esper.bench.soak.soaked import Sample

ROW = FAMILY = "stability"
INTERRUPTED = 130
MOST_LINES, LEAST_S = 200, 5.0  # of progress, and seconds between two of them


def soak(
    hours: Annotated[float, typer.Option(help="How long, over all sessions of --samples; the documents ask for 48.")],
    samples: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append each sample here; go on from those already there.")
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Between two samples; 0: 2,000 in all.")] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, and nothing else.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write report.json and report.html into this folder.")] = None,
) -> None:
    """Train a student while seeds are grafted and culled on and on; then say what drifted.

    Ctrl-C ends it early, with status 130 and the figures of what was recorded.
    """
    from esper.bench import runner
    from esper.bench.soak import stability

    stability.check(hours)
    soaking = Soaking(hours, samples, every)
    results = runner.run([Measurement(ROW, FAMILY, soaking.measure)], EFFORTS["full"])
    document = Document(results, {ROW: FAMILY})
    if out is not None:
        write(document, out / "report.json")
        save(document, out / NAME, None)
    if json:
        for figure in results.figures:
            typer.echo(lines.as_line(figure, FAMILY, results.machine))
    else:
        table.show(document, Console())
    raise typer.Exit(INTERRUPTED if soaking.interrupted else results.status)


@dataclass
class Soaking:
    """The soak that was asked for, as a measurement; it tells on stderr where it stands."""

    hours: float
    samples: Path | None
    every_s: float
    interrupted: bool = False
    errors: Console = field(default_factory=lambda: Console(stderr=True))
    _due_s: float = 0.0

    def measure(self, effort: Effort) -> Iterator[Figure]:
        from esper.bench.soak import stability

        found = stability.soak(self.hours, out=self.samples, every_s=self.every_s, on_sample=self.tell)
        self.interrupted = found.interrupted
        return found.figures()

    def tell(self, sample: Sample) -> None:
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + max(LEAST_S, self.hours * 3600 / MOST_LINES)
        words = (
            f"{sample.hours:.4g} of {self.hours:g} h: {sample.steps:,} steps, {sample.lives:,} seeds, "
            f"{sample.errors} errors, RSS {sample.rss_mb:.0f} MB, step {sample.step_ms:.2f} ms"
        )
        self.errors.print(words, markup=False, highlight=False, soft_wrap=True)
