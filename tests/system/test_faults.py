"""The short tier of every row of the fault table."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.faults.processes import TooLateError
from tests.faults.row import Result, Row, table

SEED = 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in table()])
def test_no_promise_is_broken(row: Row) -> None:
    result = tried(row, SEED)
    if result.late:  # in seconds, which a machine that stood still breaks too: what is late again is late
        again = tried(row, SEED + 1)
        again.violations += result.violations
        result = again

    assert not result.broken, "\n".join(result.broken[:20])
    assert result.counts, "it did nothing"


def tried(row: Row, seed: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        try:
            return row.run(Path(directory), row.ci, seed)
        except TooLateError as error:
            return Result(late=[str(error)])
