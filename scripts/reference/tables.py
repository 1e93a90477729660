"""Markdown of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lines of a table, ending in a blank one; empty without rows."""
    lines = [line(row) for row in rows]
    return "\n".join([line(heading), "|" + "---|" * len(heading), *lines, "", ""]) if lines else ""


def line(cells: Sequence[str]) -> str:
    """One row. A bar would end its cell, a line feed the row."""
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def code(text: str) -> str:
    """As it is typed; nothing for nothing."""
    return f"`{text}`" if text else ""
