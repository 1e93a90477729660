"""Cells of a table that rich draws."""

from __future__ import annotations

from rich.text import Text

from esper.leyline.terminal_text import printable


def cells(*texts: str) -> list[Text]:
    """Letters, whatever they spell: markup is looked for in a str, and a Text leaves escapes as they are."""
    return [Text(printable(text)) for text in texts]
