"""`esper bench run`: measures rows, prints what they came to, and writes it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from esper.bench.device import choose
from esper.bench.effort import EFFORTS, Effort, Mode
from esper.bench.figures import Figure
from esper.bench.machine import Machine, this_machine
from esper.bench.output import lines, table
from esper.bench.output.document import Document, write
from esper.bench.output.unfinished import Unfinished
from esper.bench.registry import chosen, registered
from esper.bench.results import Results
from esper.bench.row import Row
from esper.bench.underway import Underway
from esper.cli.bench.list import From
from esper.cli.bench.report import NAME, Keyring, Redis, Region, Run, Store, publish_figures, save
from esper.cli.interrupting import interruptible
from esper.cli.output.verdict import ending_with
from esper.errors import EsperError, SettingError

INTERRUPTED = 130
MINUTES: Mapping[Mode, float] = {"quick": 10.0, "gate": 20.0, "full": 90.0}
"""That a row may take: far more than it does on a slow machine."""
MOST_MINUTES = 7 * 24 * 60.0
Limit = Annotated[
    float | None, typer.Option(metavar="MINUTES", help="A row that takes longer fails; else 10, 20 or 90.")
]
Device = Annotated[
    str, typer.Option(metavar="DEVICE", help='"cuda" or "cuda:1", for the rows that can work there; else "cpu".')
]
Revision = Annotated[
    str, typer.Option(metavar="REV", help='Compare two revisions in one run; "." is the checkout as it is.')
]


def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Rows or families of `esper bench list`; else all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="At least 30 pairs, 5 s a row at most (the default).")] = False,
    gate: Annotated[bool, typer.Option("--gate", help="At least 60 pairs; status 1 on a missed gate.")] = False,
    full: Annotated[bool, typer.Option("--full", help="At least 200 pairs, for figures that are published.")] = False,
    files: From = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, and nothing else.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write report.json and report.html into this folder.")] = None,
    seed: Annotated[int, typer.Option(help="Of the order in which arms take turns.")] = 0,
    sample: Annotated[bool, typer.Option("--sample", help="Only the first row of each family.")] = False,
    store: Store = None,
    limit: Limit = None,
    device: Device = "",
    anew: Annotated[bool, typer.Option("--anew", help="Forget what an interrupted --full has left in --out.")] = False,
    baseline: Revision = "",
    current: Revision = "",
    redis: Redis = None,
    to_run: Run = None,
    keyring: Keyring = None,
    region: Region = "",
) -> None:
    """Measure rows, each arm beside the others in one interleaved run.

    Interrupted, it prints and writes what there is so far. With --full and --out each row that is done is on disk at
    once, and the same command goes on with the others, failed ones too, until all are done.

    Status 1: a row failed; with --gate also a missed gate, or a row slower than before on this machine, twice running.
    Status 130: interrupted, also by a reader of --json who left before the end.
    """
    if device:
        choose(device)
    rows = chosen_rows(names or [], files or [], sample=sample)
    families = {row.name: row.family for row in rows}
    effort = replace(EFFORTS[mode(quick=quick, gate=gate, full=full)], seed=seed)
    progress = Progress(families, Console(stderr=True), as_json=json)
    underway = begun(rows, effort, limit, progress)
    is_of_two = bool(baseline or current)
    unfinished = Unfinished(out, families) if full and out is not None and not is_of_two else None
    require_used(anew=anew and unfinished is None, limit=limit if is_of_two else None)
    if out is not None:
        make_folder(out)
    if unfinished is not None:
        go_on(unfinished, underway, progress.machine, anew=anew)
    compared = partial(compare_revisions, rows, baseline, current, files or [], underway)
    measured = partial(measure_here, rows, store, underway, progress)
    results, interrupted = results_so_far(compared if is_of_two else measured, underway)
    document = Document(results, families)
    with ending_with(INTERRUPTED if interrupted else results.status):
        deliver(document, out, store, as_json=json)
        if unfinished is not None:
            settle(unfinished, progress, is_whole=not (interrupted or underway.failed))
        if to_run is not None or redis is not None:
            publish_figures(document, to_run, redis, keyring, region)
        if json:
            progress.close(results)


def begun(rows: Sequence[Row], effort: Effort, limit: float | None, progress: Progress) -> Underway:
    names, seconds = [row.name for row in rows], limit_s(limit, effort.mode)
    return Underway(effort, progress, on_end=progress.ended, planned=names, limit_s=seconds)


def require_used(*, anew: bool, limit: float | None) -> None:
    """Raises SettingError for an option that would change nothing."""
    if anew:
        raise SettingError("--anew", "given", "--full with --out, and one revision: nothing else is gone on with")
    if limit is not None:
        raise SettingError("--limit", f"{limit:g}", "one revision: no row of a comparison of two is ended")


def limit_s(minutes: float | None, mode: Mode) -> float:
    """Raises SettingError for what is no time."""
    given = MINUTES[mode] if minutes is None else minutes
    if not 0 < given <= MOST_MINUTES:
        raise SettingError("--limit", given, "minutes above 0, of a week at most")
    return given * 60.0


def go_on(unfinished: Unfinished, underway: Underway, machine: Machine, *, anew: bool) -> None:
    """Keep what an earlier sitting has done, and add to it."""
    if anew:
        unfinished.forget()
    underway.kept = unfinished.done(underway.planned, underway.effort, machine)
    underway.on_row = unfinished.add


def settle(unfinished: Unfinished, progress: Progress, *, is_whole: bool) -> None:
    """Forget the rows that are done once all are: until then the same command measures the others."""
    if is_whole:
        unfinished.forget()
    else:
        progress.say(f"what is done stays in {unfinished.folder}: the same command measures the rest")


def results_so_far(work: Callable[[], Results], underway: Underway) -> tuple[Results, bool]:
    """What it comes to, or what there was when Ctrl-C or a signal ended it: that is not remembered in the store."""
    with interruptible():
        try:
            return work(), False
        except KeyboardInterrupt:
            return underway.results(), True


def make_folder(folder: Path) -> None:
    """Where it isn't there, before hours are spent on what is to lie in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError("--out", str(folder), f"a folder that can be written to ({error.strerror})") from None


def deliver(document: Document, out: Path | None, store: Path | None, *, as_json: bool) -> None:
    """Files first, as a table can end in a closed pipe; the table in any case, as a disk can be full."""
    try:
        if out is not None:
            write(document, out / "report.json")
            save(document, out / NAME, store)
    finally:
        if not as_json:
            table.show(document, Console())


def measure_here(rows: Sequence[Row], store: Path | None, underway: Underway, progress: Progress) -> Results:
    """This revision, compared with earlier runs on this machine, and remembered."""
    import scipy.stats  # noqa: F401  # which is loaded where it is first asked: not between two rounds

    from esper.bench import runner
    from esper.bench.history import store as stored
    from esper.bench.timing.logs import warnings_on_stderr

    for results in underway.kept:
        progress.kept(results)
    with warnings_on_stderr():
        return runner.carried_out(rows, underway, stored.Store(store))


def compare_revisions(
    rows: Sequence[Row], baseline: str, current: str, files: Sequence[Path], underway: Underway
) -> Results:
    """Two revisions in one interleaved run. Nothing ends a row of it: what a process of arms still works on would be
    taken for the answer to the next question."""
    from esper.bench.revisions import interleaved

    if not (baseline and current):
        name, given = ("--current", current) if baseline else ("--baseline", baseline)
        raise SettingError(name, given, 'a revision as well, or "." for the checkout as it is')
    underway.limit_s = None
    return interleaved.compare(rows, interleaved.Revisions(baseline, current, files), underway)


def chosen_rows(names: Sequence[str], files: Sequence[Path], *, sample: bool) -> list[Row]:
    """Rows of these names, or all; of a sample one of each family."""
    rows = chosen(names, registered(files))
    return list({row.family: row for row in reversed(rows)}.values())[::-1] if sample else rows


@dataclass
class Progress:
    """Told each figure as it is made: JSON goes out at once, a person is told on stderr which rows are done."""

    families: Mapping[str, str]
    errors: Console
    as_json: bool
    machine: Machine = field(default_factory=this_machine)

    def __call__(self, figure: Figure) -> None:
        if self.as_json:
            self._print(figure, self.machine)

    def ended(self, row: str, seconds: float, error: EsperError | None) -> None:
        if not self.as_json:
            said = f"measured {row} in {seconds:.0f} s" if error is None else f"failed: {error}"
            self.say(said)

    def close(self, results: Results) -> None:
        """Say what went wrong, which the table has too."""
        for line in table.closing(results):
            self.say(line)

    def kept(self, results: Results) -> None:
        """Of a row that an earlier sitting has done."""
        if not self.as_json:
            self.say(f"kept {', '.join(results.took_s)}")
            return
        for figure in results.figures:
            self._print(figure, results.machine)

    def say(self, line: str) -> None:
        self.errors.print(line, markup=False, highlight=False, soft_wrap=True)

    def _print(self, figure: Figure, machine: Machine) -> None:
        """Once nobody reads it any more it is as if by Ctrl-C: what was not measured is no yes."""
        try:
            typer.echo(lines.as_line(figure, lines.family_of(figure.row, self.families), machine))
        except BrokenPipeError:
            raise KeyboardInterrupt from None


def mode(*, quick: bool, gate: bool, full: bool) -> Mode:
    """The one that was asked for; quick where none was."""
    wanted: dict[Mode, bool] = {"quick": quick, "gate": gate, "full": full}
    asked = [name for name, is_wanted in wanted.items() if is_wanted]
    if len(asked) > 1:
        raise SettingError("the effort", " and ".join(asked), "one of --quick, --gate and --full")
    return asked[0] if asked else "quick"
