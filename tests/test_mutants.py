"""Planted bugs still fit the source; `make mutants` plants them."""

from __future__ import annotations

import pytest

from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.table import MUTANTS


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in MUTANTS])
def test_a_planted_bug_replaces_one_piece_of_source_and_names_a_test_that_exists(mutant: Mutant) -> None:
    assert mutant.source() != (ROOT / mutant.file).read_text()
    for test in mutant.caught_by:
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text()


def test_there_are_at_least_twenty_five_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
