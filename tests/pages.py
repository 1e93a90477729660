"""What the pages of docs/ and the README show to be typed, block by block."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- (not run|run by): ((?:(?!-->).)*) -->\n\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, the file that it is to be saved as, and what the comment above it says.

    `mark` is `run by` (a file of tests types the block's words) or `not run` (why, and what covers its code); with
    neither, tests/long/test_docs_commands.py types it.
    """

    page: str
    line: int
    language: str
    title: str
    text: str
    mark: str
    told: str

    @property
    def not_run(self) -> bool:
        """Whether no test types it."""
        return self.mark == "not run"

    @property
    def commands(self) -> list[str]:
        """One a line, without comments; a backslash at its end joins it with the next."""
        joined = self.text.replace("\\\n", " ")
        lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
        return [line for line in lines if line]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """README and every page of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def blocks(path: Path) -> tuple[Block, ...]:
    """In their order; a page is read once."""
    text = path.read_text()
    return tuple(_block(path, text, found) for found in FENCE.finditer(text))


def typed_by(test: str) -> list[Block]:
    """Every block of commands that says that this file of tests types it, page by page."""
    every = [block for page in pages() for block in blocks(page)]
    return [block for block in every if block.language == "sh" and (block.mark, block.told) == ("run by", test)]


def _block(path: Path, text: str, found: re.Match[str]) -> Block:
    before = text[: found.start()]
    mark = MARK.search(before)
    place = str(path.relative_to(ROOT))
    line = before.count("\n") + 1
    said = (mark[1], " ".join(mark[2].split())) if mark else ("", "")
    return Block(place, line, found[1], found[2] or "", found[3], *said)
