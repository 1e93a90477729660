"""Texts and times of a run as a terminal may be given them: they are their authors', not ours."""

from __future__ import annotations

from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any

_LAST_S = 253_402_300_799
"""Of the year 9999: who chooses the id of an entry may write any time into it."""


def printable(text: str) -> str:
    """Without anything that would move a terminal's cursor: anybody's bytes may stand in a letter or a name."""
    return "".join(each if each.isprintable() else "?" for each in text)


def moment(at_ns: int) -> str:
    """To the second, in UTC."""
    return datetime.fromtimestamp(min(at_ns // 10**9, _LAST_S), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Quoted:
    """A text that is always told as Python spells it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return repr(self._text)


def escaped(_logger: Any, _level: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A step of a log's lines for people: structlog quotes a value that holds a blank, any other goes out as it is."""
    for name, value in facts.items():
        if isinstance(value, str) and not value.isprintable():
            facts[name] = Quoted(value)
    return facts
