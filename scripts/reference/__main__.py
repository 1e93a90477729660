"""Writes every page that is made from the code: `python -m scripts.reference`."""

from __future__ import annotations

from scripts.reference.pages import DOCS, PAGES

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
