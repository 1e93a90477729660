"""Long lines where they go to a terminal: broken between words, not where its edge is."""

from __future__ import annotations

import shutil
import sys
from textwrap import wrap

INDENT = "    "


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
