"""The short tier of every row of the fault table."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.faults.row import Row, table

SEED = 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in table()])
def test_no_promise_is_broken(row: Row) -> None:
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        result = row.run(Path(directory), row.ci, SEED)

    assert not result.violations, "\n".join(result.violations[:20])
    assert result.counts, "it did nothing"
