"""How values read on the screen: plain ASCII of a known width, a dash for what is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from textwrap import wrap

DASH = "-"
INDENT = "    "
DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60


def clean(text: str) -> str:
    """ASCII alone, without what moves a terminal's cursor: texts of a run are its authors', not ours."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)


def folded(text: str, width: int) -> list[str]:
    """Lines of at most this width, broken between words where that can be."""
    return [text] if len(text) <= width else wrap(text, width, subsequent_indent=INDENT)


def clip(text: str, width: int) -> str:
    """At most so wide; what was cut ends in a tilde."""
    text = clean(text)
    return text if len(text) <= width else text[: max(0, width - 1)] + "~"[:width]


def whole(value: int | None) -> str:
    """14,203"""
    return DASH if value is None else f"{value:,}"


def figure(value: float | None) -> str:
    """Four significant digits."""
    return DASH if value is None or math.isnan(value) else f"{value:.4g}"


def rate(value: float | None) -> str:
    """Of things a second: 0.25, 18.2, 583, 12.3k, 4.5M."""
    if value is None:
        return DASH
    if value >= 1_000_000:
        return f"{value / 1_000_000:.1f}M"
    if value >= 10_000:
        return f"{value / 1000:.1f}k"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def age(milliseconds: int) -> str:
    """0.3s, 12s, 3m, 2h, 5d."""
    seconds = max(0, milliseconds) / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    for size, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def clock(at_ms: int, zone: tzinfo | None) -> str:
    """Hours, minutes and seconds in a zone, None: this machine's; a dash for what no calendar has."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, zone).strftime("%H:%M:%S") if at_ms else DASH
    except (ValueError, OverflowError):
        return DASH


def columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line of cells; a negative width sets its cell to the right, 0 gives it what is left."""
    told = []
    for cell, width in zip(cells, widths, strict=True):
        text = clip(cell, abs(width)) if width else clean(cell)
        told.append(text.rjust(-width) if width < 0 else text.ljust(width))
    return " ".join(told).rstrip()
