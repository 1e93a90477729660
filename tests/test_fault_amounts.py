"""A row of faults can be tried at another amount, by a name that it knows."""

from __future__ import annotations

import pytest

from tests.faults.row import AmountError
from tests.faults.rows.overload import ROW


def test_what_is_set_stands_in_the_place_of_the_tiers() -> None:
    assert ROW.amounts("full", {"seconds": 60}) == {**ROW.chunk, "seconds": 60}
    assert ROW.amounts("ci", {}) == ROW.ci


def test_a_name_that_the_row_has_not_is_told() -> None:
    with pytest.raises(AmountError, match=r"hours is 1; expected one of the amounts of overload: seconds, measured_s"):
        ROW.amounts("full", {"hours": 1})
