"""A run's results as a page of Markdown: dated, with the machine, the commands, and every figure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from itertools import groupby

from esper.bench.figures import Figure
from esper.bench.output import table, words
from esper.bench.output.document import Document
from esper.bench.registry import registered

_HEADINGS = ("arm", "statistic", "value", "n", "ratio, 95 % interval", "target, aim")


def page(document: Document) -> str:
    """As docs/benchmarks.md: nothing in it is written by hand."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Document) -> Iterator[str]:
    results, machine = document.results, document.results.machine
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(results.started_s))
    yield from ("# Benchmarks", "")
    yield f"Written by the suite, {day}: {table.summary(results)}. Machine: {machine.cpu}, {machine.cores} cores,"
    yield f"{machine.memory_bytes / 2**30:.1f} GiB, GPU {', '.join(machine.gpus) or 'none'}, {machine.kernel},"
    yield f"Python {machine.python}, torch {machine.torch or 'none'} ({machine.threads} threads), commit"
    yield f"`{machine.commit[:12] or 'unknown'}`{' with changes' if machine.dirty else ''}; load of the last minute"
    yield f"{machine.load_start:.2f} at the start, {machine.load_end:.2f} at the end. Ratios are of one interleaved"
    yield "run, with a 95 % bootstrap interval; indistinguishable: within the row's threshold or the noise of the run."
    yield from ("", "```sh", _command(document))
    yield from ("esper bench report --from-results bench/out/report.json --markdown --out docs/benchmarks.md", "```")
    for line in list(table.closing(results))[:-1]:
        yield from ("", f"- {_cell(line)}")
    if goals := [figure for figure in results.figures if figure.target is not None or figure.aspiration is not None]:
        yield from ("", "## Targets", "", _row(("row", "arm", "statistic", "value", "target, aim")), _row(["---"] * 5))
        yield from (_row([each.row, each.arm, each.stat, _value(each), words.goals_of(each)]) for each in goals)
    for family, figures in document.by_family.items():
        yield from ("", f"## {family}")
        for (row, shape), group in groupby(figures, key=lambda figure: (figure.row, figure.shape)):
            yield from ("", f"### {row}" + (f" ({shape})" if shape else ""), "")
            yield from _table(list(group))


def _command(document: Document) -> str:
    """Names the rows, unless they are all that there are; and those that came from a file of the person's own."""
    effort, own = document.results.effort, registered()
    rows = list(dict.fromkeys(figure.row.partition(", ")[0] for figure in document.results.figures))
    named = "" if own.keys() <= {*rows} else f" {' '.join(rows)}"
    others = ", ".join(row for row in rows if row not in own)
    of_files = f"  # with --from the files of {others}" if others else ""
    return f"esper bench run{named} --{effort.mode} --seed {effort.seed} --out bench/out{of_files}"


def _value(figure: Figure) -> str:
    return figure.label if figure.value is None else words.value_of(figure)


def _table(figures: Sequence[Figure]) -> Iterator[str]:
    listed = [figure for figure in figures if not table.is_aside(figure)]
    if listed:
        yield _row(_HEADINGS)
        yield _row(["---"] * len(_HEADINGS))
        for each in listed:
            number = f"{each.num:,}" if each.num else ""
            goals = words.goals_of(each)
            yield _row([each.arm, each.stat, words.value_of(each), number, words.ratio_of(each), goals])
        yield ""
    yield from (f"- {_cell(aside)}" for aside in table.asides(figures))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Nothing in a name is taken for markup."""
    return re.sub(r"[\\|*_`]|<(?!=)", r"\\\g<0>", text)
