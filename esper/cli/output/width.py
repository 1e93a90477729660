"""Long lines where they go to a terminal: broken between words, not where its edge is."""

from __future__ import annotations

import shutil
import sys
from textwrap import wrap

INDENT = "    "


def fitting(line: str) -> str:
    """As wide as the terminal at most, and indented below its first line; whole in a file or a pipe."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return "\n".join(wrap(line, width, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False))
