"""The screen of a live run: draws the picture, and does what a key asks for."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from datetime import tzinfo
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.widgets import Static

from esper.client import Controller, Receipt
from esper.errors import CommandFailedError, EsperError
from esper.leyline.lifecycle import short
from esper.top import pages
from esper.top.board import Style, ViewState, board
from esper.top.dialogs import Ask, Confirm, Page
from esper.top.form import age, clean
from esper.top.grammar import parsed
from esper.view.picture import Picture

REFRESH_S = 0.5
ANSWER_S = 60.0
NO_KEY = "this keyring holds no controller's key"
STYLES: dict[Style, str] = {"bar": "reverse", "head": "bold", "cursor": "reverse", "bold": "bold", "plain": ""}
"""Attributes of any terminal, and no colour; what they show is told by words too."""
CSS = """
Screen { background: ansi_default; color: ansi_default; overflow: hidden hidden; }
#board { width: 100%; height: 100%; background: ansi_default; color: ansi_default; }
Page, Ask, Confirm { background: ansi_default; align: center middle; }
.page { width: 100%; height: 100%; background: ansi_default; color: ansi_default; }
.page #text { width: 100%; height: 1fr; background: ansi_default; color: ansi_default; }
.dialog { width: 76; height: auto; border: ascii ansi_default; padding: 0 1;
          background: ansi_default; color: ansi_default; }
.dialog Static { background: ansi_default; color: ansi_default; height: auto; }
.dialog Input, .dialog Input:focus { width: 100%; background: ansi_default; color: ansi_default; }
.dialog Input > .input--cursor { background: ansi_default; color: ansi_default; text-style: reverse; }
.dialog Input > .input--placeholder, .dialog Input > .input--suggestion { color: ansi_default; }
.dialog Input > .input--selection { background: ansi_default; text-style: underline; }
"""


class Source(Protocol):
    """Where the picture comes from."""

    @property
    def trouble(self) -> str:
        """Why what is shown may be old; empty: it is not."""

    @property
    def unread(self) -> Collection[str]:
        """Streams that this user may not read."""

    def now_ms(self) -> int:
        """The server's clock."""


class TopApp(App[None]):
    """`controller` None: nothing can be published, and the screen says why by `read_only`."""

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", priority=True),
        Binding("up", "choose(-1)", "up"),
        Binding("down", "choose(1)", "down"),
        ("enter", "history", "seed"),
        ("p", "publish", "publish"),
        ("k", "cull", "cull"),
        ("space", "pause", "pause"),
        ("c", "commands", "commands"),
        ("w", "workers", "workers"),
        ("a", "alarms", "alarms"),
        ("question_mark,h", "help", "help"),
    ]

    def __init__(
        self,
        picture: Picture,
        source: Source,
        controller: Controller | None = None,
        *,
        read_only: str = NO_KEY,
        zone: tzinfo | None = None,
    ) -> None:
        super().__init__(ansi_color=True)
        self.picture, self.source, self.controller = picture, source, controller
        self.read_only = "" if controller else read_only
        self.zone, self.notice, self.seed = zone, "", ""
        self._board = Static(id="board", markup=False)  # kept: a tick while the screen goes would look for it in vain

    def compose(self) -> ComposeResult:
        yield self._board

    def on_mount(self) -> None:
        self.set_interval(REFRESH_S, self.draw)
        self.draw()

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """The picture as it is now."""
        self._keep_choice()
        if not self.source.trouble:  # else nobody knows who is silent
            self.picture.tick(self.source.now_ms())
        text = Text(no_wrap=True, overflow="crop")
        lines = board(self.picture, self._view_state())
        for number, line in enumerate(lines):
            text.append(line.text + ("\n" if number < len(lines) - 1 else ""), STYLES[line.style])
        self._board.update(text)

    def say(self, notice: str) -> None:
        """What became of a key, in the line above the keys."""
        self.notice = clean(notice)
        self.draw()

    def action_choose(self, by: int) -> None:
        """The next seed, or the one before."""
        names = self._names()
        if names:
            self.seed = names[min(max(names.index(self.seed) + by, 0), len(names) - 1)]
            self.draw()

    def action_history(self) -> None:
        seed = self.seed
        if seed:
            self._page(f"seed {seed}", lambda width: pages.history(self.picture, seed, width, self.zone))

    def action_commands(self) -> None:
        self._page("commands", lambda width: pages.commands(self.picture, width, self.zone))

    def action_workers(self) -> None:
        self._page("workers", lambda width: pages.workers(self.picture, width))

    def action_alarms(self) -> None:
        self._page("alarms", lambda width: pages.alarms(self.picture, self.zone))

    def action_help(self) -> None:
        self._page("keys of esper top", lambda width: pages.HELP)

    def action_publish(self) -> None:
        """Ask for a command, then whether it is meant."""
        if self._may_publish():
            self.push_screen(Ask(self.seed), lambda line: self._confirm(line) if line else None)

    def action_cull(self) -> None:
        if self._may_publish() and self.seed:
            self._confirm(shlex.join(["cull", self.seed]))

    def action_pause(self) -> None:
        if self._may_publish():
            self._confirm("resume" if self.picture.workers.is_paused else "pause")

    def _page(self, title: str, lines: Callable[[int], list[str]]) -> None:
        self.push_screen(Page(title, lines))

    def _may_publish(self) -> bool:
        if self.controller is None:
            self.say(f"nothing can be published: {self.read_only}")
        return self.controller is not None

    def _confirm(self, line: str) -> None:
        question = [f"Publish to run {self.picture.run_id}:", "", f"    {line}", *self._standing(line)]
        self.push_screen(Confirm(question), lambda yes: self._send(line) if yes else self.say("nothing was published"))

    def _standing(self, line: str) -> list[str]:
        """Where the seed stands that the line names, so that it is seen before the answer."""
        known = self.picture.seeds.by_id
        named = [known[word] for word in shlex.split(line) if word in known]
        return ["", *(f"    {s.state.seed_id} is {short(s.state.stage)}, alpha {s.state.alpha:.2f}" for s in named[:1])]

    def _send(self, line: str) -> None:
        self.say(f"publishing: {line}")
        self.run_worker(self._published(line))

    async def _published(self, line: str) -> None:
        """Send it, and say what becomes of it."""
        assert self.controller is not None
        controller = self.controller
        try:
            receipt = await parsed(line)(controller.within(ANSWER_S))
            self.say(f"published: {line}")
            self.say(f"{line}: {await outcome(receipt)}")
        except EsperError as error:
            self.say(f"{line}: {error}")

    def _view_state(self) -> ViewState:
        size = self.size
        return ViewState(
            width=max(size.width, 20),
            height=max(size.height, 8),
            seed=self.seed,
            zone=self.zone,
            trouble=self._trouble(),
            notice=self.notice,
            read_only=self.read_only,
            unread=", ".join(sorted(self.source.unread)),
        )

    def _trouble(self) -> str:
        trouble = clean(self.source.trouble)
        return f"of {age(self.source.now_ms() - self.picture.heard_ms)} ago: {trouble}" if trouble else ""

    def _names(self) -> list[str]:
        return [seed.state.seed_id for seed in self.picture.seeds.ordered]

    def _keep_choice(self) -> None:
        names = self._names()
        if self.seed not in names:
            self.seed = names[0] if names else ""


async def outcome(receipt: Receipt) -> str:
    """What a run has answered to a command, once all have."""
    try:
        applied = await receipt.applied(ANSWER_S)
    except CommandFailedError as error:
        return f"{error.reason}: {error.detail}"
    steps = sorted({answer.step for answer in applied})
    return f"applied by {len(applied)} at step {', '.join(f'{step:,}' for step in steps)}"
