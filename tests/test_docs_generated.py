"""Pages that are made from the code are as the code makes them now; `make docs` writes them anew."""

from __future__ import annotations

import pytest

from scripts.reference.pages import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_in_step(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "make docs"


def test_every_setting_says_what_it_is() -> None:
    rows = [line.rstrip("|").split("|") for line in PAGES["settings.md"]().splitlines() if line.startswith("| `")]

    assert len(rows) > 100
    assert [cells[1].strip() for cells in rows if not cells[-1].strip()] == []
