"""Ids of entries in the order of the server's."""

from __future__ import annotations

import pytest

from esper.leyline.entries import entry_ms, entry_order

IN_ORDER = ["", "0-1", "9", "9-9", "9-10", "10-0", "1700000000000-0", f"1700000000000-{2**64 - 1}", "1700000000001-0"]


def test_entries_are_ordered_by_two_numbers_and_no_entry_comes_first() -> None:
    assert sorted(IN_ORDER, key=entry_order) == IN_ORDER != sorted(IN_ORDER)
    assert [entry_ms(each) for each in IN_ORDER[:4]] == [0, 0, 9, 9]


@pytest.mark.parametrize("text", ["then", "1-x", "1-2-3"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        entry_order(text)
