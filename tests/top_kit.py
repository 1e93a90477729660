"""The screen of `esper top` as a test reads it: its text, and text that was kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.segment import Segment
from textual.widget import Widget
from textual.widgets import Static

from esper.top.app import TopApp

KEPT = Path(__file__).parent / "snapshots"


@dataclass
class Still:
    """A source that is never in trouble, unless the test says so, and whose clock stands still."""

    trouble: str = ""
    at_ms: int = 0
    unread: tuple[str, ...] = ()

    def now_ms(self) -> int:
        return self.at_ms


def screen(app: TopApp, selector: str = "#board") -> str:
    """What a widget of the topmost screen shows, as the terminal is given it, without what pads a line."""
    widget = app.screen.query_one(selector, Static)
    lines = [widget.render_line(row).text.rstrip() for row in range(widget.size.height)]
    return "\n".join(lines).rstrip() + "\n"


def drawn(widget: Widget) -> list[Segment]:
    """Every piece of text that a widget draws, with its style."""
    return [part for row in range(widget.size.height) for part in widget.render_line(row)]


def require_as_kept(name: str, text: str) -> None:
    """Equal to a file of tests/snapshots. One that is not there is written, to be looked at; the test fails."""
    path = KEPT / name
    if not path.exists():
        path.write_text(text)
        pytest.fail(f"{path} was not there: it is written now; look at it, then run again")
    assert text == path.read_text()
