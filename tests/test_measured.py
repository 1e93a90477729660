"""The checker of the tiers' totals finds what it should, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from esper.narset.statistics import Origin, of_values
from tests.faults.measured import differences, parts, values_of


def total(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> object:
    """The figures of these values as they stand in the running total."""
    return of_values(values, [Origin(number) for number in range(len(values))]).message()


def test_the_figures_of_all_values_are_right() -> None:
    values = values_of(1, 7, 20_000)[:, 1]

    assert list(differences(total(values), values)) == []


@pytest.mark.parametrize("what", ["lost", "twice", "changed", "quantiles"])
def test_one_value_lost_counted_twice_or_changed_shows(what: str) -> None:
    values = values_of(1, 7, 20_000)[:, 1]
    wrong = {
        "lost": values[1:],
        "twice": np.append(values, values[17]),
        "changed": np.where(np.arange(len(values)) == 17, values + 0.5, values),
        "quantiles": np.append(values[:-10_000], values[:10_000]),
    }[what]

    assert list(differences(total(wrong), values))


def test_every_row_goes_out_once() -> None:
    made = parts(16, 1000)

    numbers = [(part.source, number) for part in made for number in range(part.first, part.first + part.size)]
    assert sorted(numbers) == [(source, number) for source in range(16) for number in range(1, 1001)]
