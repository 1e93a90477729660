"""Pages that are made from the code are as the code makes them now; `make docs` writes them anew."""

from __future__ import annotations

import pytest

from scripts.reference.pages import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_in_step(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "make docs"
