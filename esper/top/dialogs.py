"""What opens above the screen: a page to read, a line to type, a question to answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from esper.errors import EsperError
from esper.top.form import clean, folded
from esper.top.grammar import examples, parsed

REFRESH_S = 1.0
NOT_TEXT = 2
"""Rows of a page: its title, and its keys."""
MOST_EXAMPLES = 8


class Page(ModalScreen[None]):
    """A page that scrolls. What it says is asked for anew every second.

    The terminal is given what it has rows for: laying out the 33,000 lines of 512 commands on 64 workers took 25 s.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,enter", "close", "back"),
        ("up", "move(-1)", "up"),
        ("down", "move(1)", "down"),
        ("pageup", "turn(-1)", "page up"),
        ("pagedown", "turn(1)", "page down"),
        ("home", "move(-1_000_000)", "first"),
        ("end", "move(1_000_000)", "last"),
    ]

    def __init__(self, title: str, lines: Callable[[int], list[str]]) -> None:
        super().__init__()
        self._title, self._lines = title, lines
        self._told: list[str] = []
        self._first = 0
        self._text, self._keys = (
            Static(id="text", markup=False),
            Static(id="keys", markup=False),
        )  # kept as the board is

    def compose(self) -> ComposeResult:
        with Vertical(classes="page"):
            yield Static(Text(f" {clean(self._title)}", style="reverse", no_wrap=True), id="title")
            yield self._text
            yield self._keys

    def on_mount(self) -> None:
        self.call_after_refresh(self.show)
        self.set_interval(REFRESH_S, self.show)

    def on_resize(self) -> None:
        self.call_after_refresh(self.show)

    @property
    def _room(self) -> int:
        return max(1, self.size.height - NOT_TEXT)

    def show(self) -> None:
        """Ask again, for the width that there is."""
        width = max(20, self.size.width)
        self._told = [part for line in self._lines(width) for part in folded(clean(line), width)]
        self.action_move(0)

    def action_move(self, by: int) -> None:
        """So many lines down, as far as there are any."""
        last = max(0, len(self._told) - self._room)
        self._first = min(max(self._first + by, 0), last)
        shown = self._told[self._first : self._first + self._room]
        where = f"{self._first + 1}-{self._first + len(shown)} of {len(self._told):,}   " if last else ""
        self._text.update(Text("\n".join(shown), no_wrap=True))
        self._keys.update(Text(f" {where}up down PgUp PgDn  escape back", style="reverse", no_wrap=True))

    def action_turn(self, by: int) -> None:
        """So many pages down."""
        self.action_move(by * self._room)

    def action_close(self) -> None:
        self.dismiss()


class Ask(ModalScreen[str | None]):
    """A line to type, in the words of `esper publish`. It is given back once it can be read."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "close", "back")]

    def __init__(self, seed: str = "") -> None:
        super().__init__()
        self._seed = seed

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text("Publish a command: the words behind `esper publish`", style="bold"))
            yield Input(placeholder="cull s0", select_on_focus=False, compact=True)
            yield Static(id="said", markup=False)
            yield Static(id="examples", markup=False)
            yield Static(Text("enter: read it, and ask before it is sent   escape: back"))

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._offer("")

    def on_input_changed(self, changed: Input.Changed) -> None:
        self.query_one("#said", Static).update("")
        self._offer(changed.value)

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        """Give the line back, or say what is wrong with it."""
        try:
            parsed(submitted.value)
        except EsperError as error:
            self.query_one("#said", Static).update(Text(clean(str(error)), style="bold"))
        else:
            self.dismiss(submitted.value)

    def action_close(self) -> None:
        self.dismiss(None)

    def _offer(self, start: str) -> None:
        lines = examples(start, self._seed)[:MOST_EXAMPLES]
        self.query_one("#examples", Static).update(Text("\n".join(f"  {line}" for line in lines)))


class Confirm(ModalScreen[bool]):
    """A question that only `y` answers with yes."""

    BINDINGS: ClassVar[list[BindingType]] = [("y", "answer(True)", "yes"), ("n,escape,q", "answer(False)", "no")]

    def __init__(self, question: list[str]) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text("\n".join(map(clean, self._question))))
            yield Static(Text("\ny: publish   n: back", style="bold"))

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
