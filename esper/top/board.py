"""The whole screen as lines: how the rows of a terminal are dealt out among the panes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Literal

from esper.top import panes
from esper.top.form import clip, clock, whole
from esper.top.panes import Pane
from esper.view.picture import Picture

Style = Literal["bar", "head", "plain", "cursor", "bold"]
KEYS = "p publish  k cull  space pause  enter seed  c commands  ? help  q quit"
READING_KEYS = "enter seed  c commands  w workers  a alarms  ? help  q quit   (read-only)"
NOT_ROWS = 9
"""Title, three headings, three empty lines, the notice and the keys."""
FEWEST = (2, 3, 3)
"""Rows of workers, seeds and commands that are kept where there is little room."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the terminal."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True, slots=True)
class ViewState:
    """How the picture is looked at: the size of the terminal, the seed under the cursor, and what to say beside it."""

    width: int = 80
    height: int = 24
    seed: str = ""
    zone: tzinfo | None = None
    trouble: str = ""  # why what is shown may be old
    notice: str = ""  # what became of the last key
    read_only: str = ""  # why nothing can be published; empty: it can
    unread: str = ""  # streams that this user may not read


def board(picture: Picture, view: ViewState) -> list[Line]:
    """As many lines as the terminal has, none wider than it is."""
    tables = (
        panes.workers(picture, view.width),
        panes.seeds(picture, view.width - 2),
        panes.orders(picture, view.width, view.zone),
    )
    fixed = _fixed(picture)
    room = view.height - NOT_ROWS - len(fixed)
    shares = dealt(room, [len(table.lines) for table in tables])
    lines = [_title(picture, view), *_table(tables[0], shares[0]), Line("")]
    lines += [*_seeds(tables[1], shares[1], picture, view), Line("")]
    lines += [*fixed, Line(""), *_table(tables[2], shares[2])]
    num_rows = max(0, view.height - 2)
    body = lines[:num_rows]
    body += [Line("")] * (num_rows - len(body))
    keys = f" {READING_KEYS if view.read_only else KEYS}".ljust(view.width)
    whole_board = [*body, _notice(view), Line(keys, "bar")][: view.height]
    return [Line(clip(each.text, view.width), each.style) for each in whole_board]


def dealt(room: int, wanted: Sequence[int]) -> list[int]:
    """Rows for each table: the fewest first, then one in turn to each that wants more, until there are none."""
    shares = [min(want, fewest) for want, fewest in zip(wanted, FEWEST, strict=True)]
    left = room - sum(shares)
    while left > 0 and shares != list(wanted):
        for place, want in enumerate(wanted):
            if shares[place] < want and left > 0:
                shares[place] += 1
                left -= 1
    return shares


def visible(rows: Sequence[str], room: int, cursor: int) -> tuple[list[str], int]:
    """As many rows as there is room for, with the cursor's among them, and how many come before."""
    if len(rows) <= room:
        return list(rows), 0
    room = max(1, room - 1)  # a row says what is left out
    start = min(max(0, cursor - room + 1), len(rows) - room)
    shown = list(rows[start : start + room])
    return [*shown, f"... {len(rows) - room} more"], start


def _title(picture: Picture, view: ViewState) -> Line:
    beats = [worker.beat for worker in picture.workers.ordered]
    step = whole(max((beat.step for beat in beats), default=None)) if beats else "-"
    known, size = len(beats), picture.workers.world_size
    left = f" esper top  {picture.run_id}  {_doing(picture)}  {known}/{size or '?'} workers  step {step}"
    right = clock(picture.now_ms, view.zone) + " "
    room = max(0, view.width - len(right))
    return Line(f"{clip(left, max(0, room - 1)):{room}}{right}", "bar")


def _doing(picture: Picture) -> str:
    """What the run is at; of workers that are silent or evicted how many, and that alone where none is left."""
    workers = picture.workers
    if not workers.by_name or workers.are_done:
        return "ended" if workers.by_name else "waiting"
    troubled = workers.troubled(picture.now_ms)
    told = [f"{number} {state.upper()}" for state, number in troubled.items()]
    if sum(troubled.values()) < len(workers.by_name):
        told.insert(0, "PAUSED" if workers.is_paused else "running")
    return ", ".join(told)


def _fixed(picture: Picture) -> list[Line]:
    told = [
        ("BARRIER", panes.barrier(picture)),
        ("TELEMETRY", panes.telemetry(picture)),
        ("BREAKERS", panes.breakers(picture)),
        ("REJECTED", panes.rejected(picture)),
    ]
    if picture.seeds.rollbacks:
        told.append(("ROLLBACK", panes.rollback(picture)))
    return [Line(f"{name:9} {text}") for name, text in told]


def _table(pane: Pane, share: int) -> list[Line]:
    shown, _ = visible(pane.lines, share, 0)
    return [Line(pane.head, "head"), *map(Line, shown)]


def _seeds(pane: Pane, share: int, picture: Picture, view: ViewState) -> list[Line]:
    """The cursor is an arrow, so that it shows without any attribute of the terminal."""
    names = [seed.state.seed_id for seed in picture.seeds.ordered]
    place = names.index(view.seed) if view.seed in names else -1
    shown, start = visible(pane.lines, share, max(place, 0))
    lines = [Line("  " + pane.head, "head")]
    for number, text in enumerate(shown, start=start):
        here = number == place and number - start < len(names)
        lines.append(Line(f"> {text}".ljust(view.width), "cursor") if here else Line(f"  {text}"))
    return lines


def _notice(view: ViewState) -> Line:
    if view.trouble:
        return Line(f"OLD DATA {view.trouble}", "bold")
    if view.notice:
        return Line(view.notice, "bold")
    told = [f"this user may not read {view.unread}"] * bool(view.unread)
    return Line("; ".join([*told, *[f"read-only: {view.read_only}"] * bool(view.read_only)]))
