"""`esper diff`: where the decisions of two runs part."""

from __future__ import annotations

import asyncio
import json as notation
from pathlib import Path
from typing import Annotated

import typer

from esper.cli.options import RUNS, AsObject, RunsDir
from esper.cli.output.verdict import ending_with
from esper.errors import SettingError
from esper.leyline.terminal_text import printable
from esper.runtime.history import logbook
from esper.runtime.history.decision_diff import Decided, Divergence, divergence, history
from esper.view import wording

PART = 1


def diff(
    one: Annotated[str, typer.Argument(help="A run, live or kept below --runs-dir; or its folder or log.")],
    other: Annotated[str, typer.Argument(help="Another one.")],
    runs_dir: RunsDir = RUNS,
    keyring: Annotated[Path | None, typer.Option(help="A keyring of the first; default: beside its log.")] = None,
    other_keyring: Annotated[Path | None, typer.Option(help="A keyring of the other one.")] = None,
    json: AsObject = False,
) -> None:
    """Compare what two runs decided, step by step. Status 0: alike, digests included; 1: they part somewhere."""
    left, right = _history(one, runs_dir, keyring), _history(other, runs_dir, other_keyring)
    found = divergence(left, right)
    with ending_with(0 if found is None else PART):
        if json:
            typer.echo(notation.dumps({"equal": True, "common": len(left)} if found is None else found.row()))
        else:
            typer.echo(printable(f"alike in all {len(left)} decisions") if found is None else told(found, left))


def told(found: Divergence, left: list[Decided]) -> str:
    """The last that they have in common, and what each did then."""
    lines = [f"alike in {wording.counted(found.common, 'decision')}, then they differ in {found.differs_in}"]
    lines += [f"  both:  {line(left[found.common - 1])}"] if found.common else []
    in_full = found.differs_in == "command" and words(found.one) == words(found.other)
    lines += [f"  one:   {line(found.one, in_full=in_full)}", f"  other: {line(found.other, in_full=in_full)}"]
    return "\n".join(map(printable, lines))


def line(decided: Decided | None, *, in_full: bool = False) -> str:
    """`in_full`: with each field of the command, as words leave out some."""
    if decided is None:
        return "has ended"
    what = decided.what if in_full else words(decided)
    return f"step {decided.step} (round {decided.round}): {what} -> {decided.verdict}"


def words(decided: Decided | None) -> str:
    """What was decided, as `esper audit` says it."""
    if decided is None:
        return ""
    return decided.what if decided.command is None else wording.told(decided.command)


def _history(run: str, runs_dir: Path, keyring: Path | None) -> list[Decided]:
    book, keys = asyncio.run(logbook.find(run, runs_dir, keyring))
    if keys is None:
        raise SettingError("--keyring", "", f"a keyring of {run}: what can't be opened can't be compared")
    return list(history(logbook.opened(book, keys)))
