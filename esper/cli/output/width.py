"""How wide lines are: columns of a table, and what goes to a terminal, broken between words and not at its edge."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from textwrap import wrap

from esper.leyline.terminal_text import printable

INDENT = "    "


def columns(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """A table in letters, as wide as what stands in it: these columns to the right, all others to the left."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [printable("  ".join(_set(row, widths, numbers)).rstrip()) for row in rows]


def _set(row: Sequence[str], widths: Sequence[int], numbers: Collection[int]) -> Iterator[str]:
    for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if at in numbers else cell.ljust(width)


def fitting(text: str) -> str:
    """Each line as wide as the terminal at most, and what goes on below it indented; whole in a file or a pipe."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(broken(line, width) for line in text.split("\n"))


def broken(line: str, width: int) -> str:
    """Between words, so that none is longer than this, unless one word is."""
    indent = line[: len(line) - len(line.lstrip())] + INDENT
    return "\n".join(wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
