"""Texts of a run as a terminal may be given them: they are their authors', not ours."""

from __future__ import annotations


def printable(text: str) -> str:
    """Without anything that would move a terminal's cursor: anybody's bytes may stand in a letter or a name."""
    return "".join(each if each.isprintable() else "?" for each in text)
