"""One run as its pages show it: takes what is read along, and says what has changed since it was last asked."""

from __future__ import annotations

from typing import Any

from esper.errors import RefusedError
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.seal import Opened
from esper.view.curves import Curves
from esper.view.orders import Orders
from esper.view.picture import COMMAND_STREAMS, Look, Picture
from esper.view.timeline import Row, Timeline
from esper.web import document

MOST_ORDERS = 4_000
"""As many as a page may begin with, of both streams: an answer to one that is forgotten would count as one more."""


class Board:
    """Picture, curves and timeline of one run, fed alike. Has no clock, and knows nothing of browsers."""

    def __init__(self, run_id: str, keyring: RoleKeyring) -> None:
        self.picture = Picture(run_id, orders=Orders(MOST_ORDERS))
        self.curves, self.timeline = Curves(), Timeline()
        self.trouble = ""
        self.unread: list[str] = []  # streams that the server keeps from us
        self._keyring = keyring
        self._rows: dict[str, Row] = {}
        self._changed: dict[str, Row] = {}
        self._said: dict[str, Any] = {}

    def note(self, opened: Opened) -> None:
        """Take a message that opened."""
        self.picture.note(opened)
        self.curves.note(opened)
        order = self.picture.orders.about(opened)
        if order is not None:
            self.curves.note_order(order)
            for stream in COMMAND_STREAMS:
                known = self._rows.get(f"{stream}/{order.entry_id}")
                if known is not None and known.order is None and order.command is None:
                    self._take(self.timeline.answer(known, order))
                elif known is not None and known.order is order:
                    self._take(known)
        row = self.timeline.note(opened, self._keyring, order)
        if row is not None:
            self._take(row)

    def look(self, look: Look) -> None:
        """Take what was read beside the messages."""
        self.picture.look(look)

    def refuse(self, stream: str, entry_id: str, sealed: bytes, error: RefusedError) -> None:
        """Take an entry that no reader takes; one of a decision's streams is shown."""
        name = stream.rpartition(":")[2]
        if name in ("commands", "optimizer", "decisions", "receipts", "emergency"):
            order = self.picture.orders.answered(entry_id) if name in COMMAND_STREAMS else None
            self._take(self.timeline.refuse(name, entry_id, sealed, error, order))

    def everything(self) -> dict[str, Any]:
        """For a browser that knows nothing yet."""
        rows = [self._row(row) for row in self.timeline.rows]
        kept = document.kept(self.timeline)
        return {**self._sections(), "kept": kept, "lines": document.lines(self.curves), "rows": rows}

    def changes(self) -> dict[str, Any]:
        """Sections that differ from those said last, points added, rows that are new or came to something."""
        sections = self._sections()
        changed = {name: said for name, said in sections.items() if self._said.get(name) != said}
        self._said = sections
        if lines := document.fresh(self.curves):
            changed["lines"] = lines
        if self._changed:
            changed["rows"] = [self._row(row) for row in self._changed.values()]
            self._changed = {}
        return changed

    def seed(self, seed_id: str) -> dict[str, Any] | None:
        """A seed's page; None: no such seed."""
        seed = self.picture.seeds.by_id.get(seed_id)
        return None if seed is None else document.seed_page(seed)

    def _sections(self) -> dict[str, Any]:
        picture = self.picture
        return {
            "head": {**document.head(picture), "trouble": self.trouble, "unread": self.unread},
            "workers": [document.worker_row(worker, picture.now_ms) for worker in picture.workers.ordered],
            "seeds": [document.seed_row(seed) for seed in picture.seeds.ordered],
            "flow": document.flow(picture),
            "alarms": document.alarms(picture),
            "marks": document.marks(self.curves, picture),
        }

    def _row(self, row: Row) -> dict[str, Any]:
        is_told = row.order is None or self.picture.orders.is_told(row.order)
        return document.timeline_row(row, is_told=is_told)

    def _take(self, row: Row) -> None:
        key = f"{row.stream}/{row.entry_id}"
        self._rows[key] = self._changed[key] = row
        if len(self._rows) > 2 * self.timeline.most:
            self._rows = {f"{kept.stream}/{kept.entry_id}": kept for kept in self.timeline.rows}
