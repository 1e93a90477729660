"""Whether two arms came to the same: nothing is timed before they do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from esper.errors import EsperError

Answer: TypeAlias = bytes | str | int | float | Sequence["Answer"]
"""A tensor answers with `tensor.flatten().tolist()`, a message with its bytes."""


class DisagreementError(EsperError):
    """Two arms of one comparison that do not compute the same."""

    def __init__(self, row: str, one: str, other: str, where: str) -> None:
        self.row, self.one, self.other, self.where = row, one, other, where
        super().__init__(f"{row}: {other} does not come to what {one} comes to: {where}")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far numbers may lie apart, as math.isclose has it. Bytes, words and lengths are equal or not."""

    relative: float = 0.0
    absolute: float = 0.0


EXACT = Tolerance()


def difference(one: Answer, other: Answer, tolerance: Tolerance, path: str = "answer") -> str:
    """Where they differ first, in words; an empty string where they agree."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        close = math.isclose(one, other, rel_tol=tolerance.relative, abs_tol=tolerance.absolute)
        return "" if close else f"{path} is {other!r}, expected {one!r}"
    if isinstance(one, bytes | str) or isinstance(other, bytes | str):
        return "" if one == other else f"{path} is {other!r:.80}, expected {one!r:.80}"
    if isinstance(one, int | float) or isinstance(other, int | float):
        return f"{path} is {other!r:.80}, expected {one!r:.80}"
    if len(one) != len(other):
        return f"{path} has {len(other)} items, expected {len(one)}"
    found = (
        difference(left, right, tolerance, f"{path}[{n}]")
        for n, (left, right) in enumerate(zip(one, other, strict=True))
    )
    return next((words for words in found if words), "")
