"""The short tier of every row of the fault table."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.faults.part import Part
from tests.faults.row import Result, Row, table

SEED = 1


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in table()])
def test_no_promise_is_broken(row: Row) -> None:
    if row.name == "overload" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("who slows the region down to its part of a processor slows down all that are to tell it more")
    part = Part(row, "ci", SEED)
    result = tried(part)
    broken = told(part, result.violations)
    if result.late:  # in seconds, which a machine that stood still breaks too: what is late again is late
        part = Part(row, "ci", SEED + 1)
        result = tried(part)
        broken += told(part, result.broken)

    assert not broken, "\n".join(broken)
    assert result.counts, "it did nothing"


def told(part: Part, sentences: list[str]) -> list[str]:
    """What was broken, and the command that does it again."""
    return [*sentences[:20], f"again with: {part.again}"] if sentences else []


def tried(part: Part) -> Result:
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        return part.run(Path(directory))
