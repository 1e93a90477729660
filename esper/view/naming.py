"""The order in which names of seeds and workers stand wherever a person reads them."""

from __future__ import annotations

import re
from typing import TypeAlias

_NUMBER = re.compile("([0-9]+)")
SortKey: TypeAlias = tuple[tuple[tuple[str, int, str], ...], str]


def by_value(name: str) -> SortKey:
    """Key to sort by: numbers within a name count by what they are worth, so that seed-2 stands before seed-10.

    A name of the same worth, as seed-02, is told apart by its letters. Digits are never made a number: there is no
    limit to how many a name may hold.
    """
    texts = _NUMBER.split(name)
    numbers = [digits.lstrip("0") for digits in texts[1::2]]
    worth = [(text, len(digits), digits) for text, digits in zip(texts[::2], [*numbers, ""], strict=True)]
    return tuple(worth), name
