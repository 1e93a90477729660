"""Holds what a caller gave against what a message can carry: protobuf's own errors don't say which value they met."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from esper.errors import SettingError

Word = TypeVar("Word")
WIDEST_BITS = 63
"""Of a count or a step."""


def text(name: str, value: str) -> str:
    """What UTF-8 can spell, or a SettingError. How long it may be is for the rules of the message."""
    try:
        str.encode(value)
    except (TypeError, UnicodeEncodeError):
        raise SettingError(name, value, "text") from None
    return value


def optional(name: str, value: str | None) -> str:
    """Empty for None, or a SettingError: what came out empty by mistake is not taken for nothing."""
    if value is not None and not text(name, value):
        raise SettingError(name, value, "text, or None")
    return value or ""


def texts(name: str, values: Iterable[str]) -> list[str]:
    """Several, or a SettingError; one text is not taken for its letters."""
    try:
        return [text(name, value) for value in _each(values)]
    except TypeError:
        raise SettingError(name, values, "a list of texts") from None


def chosen(name: str, value: str, table: Mapping[str, Word]) -> Word:
    """What a word stands for, or a SettingError that lists the words."""
    if not isinstance(value, str) or value not in table:
        raise SettingError(name, value, f"one of {', '.join(table)}")
    return table[value]


def number(name: str, value: float) -> float:
    """A finite number, or a SettingError. Text is none, whatever it spells."""
    if not math.isfinite(given := _float(value)):
        raise SettingError(name, value, "one finite number" if hasattr(value, "__float__") else "a number")
    return given


def numbers(values: Mapping[str, float]) -> dict[str, float]:
    """The same of several, by their names."""
    return {text("name of a number", name): number(name, value) for name, value in values.items()}


def whole(name: str, value: float, *, least: int = 0, bits: int = WIDEST_BITS) -> int:
    """A count or a step of so many bits, or a SettingError."""
    number(name, value)
    if value != int(value) or not least <= value < 2**bits:
        raise SettingError(name, value, f"a whole number from {least} up, below 2**{bits}")
    return int(value)


def milliseconds(name: str, seconds: float) -> int:
    """A time to wait as the wire carries it, 0 for one without end, or a SettingError."""
    if (given := _float(seconds)) and not 0.001 <= given < 2**32 / 1000:
        raise SettingError(name, seconds, "seconds from 0.001 to 4294967, or 0 for no end")
    return int(given * 1000)


def patience_s(name: str, seconds: float) -> float:
    """How long somebody waits, or a SettingError; infinity is without end."""
    if not (given := _float(seconds)) >= 0:
        raise SettingError(name, seconds, "seconds from 0 up")
    return given


def _float(value: float) -> float:
    """NaN where it is no number."""
    try:
        return float(value) if hasattr(value, "__float__") else math.nan
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last is torch's, of a tensor without values
        return math.nan


def _each(values: Iterable[str]) -> Iterator[str]:
    if isinstance(values, str | bytes):
        raise TypeError
    return iter(values)
