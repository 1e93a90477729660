"""What the pages of docs/ and the README show to be typed, block by block."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- not run: (.*?) -->\n\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, the file that it is to be saved as, and why it is not run, or nothing."""

    page: str
    line: int
    language: str
    title: str
    text: str
    not_run: str | None

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


def blocks(path: Path) -> list[Block]:
    """In their order."""
    text = path.read_text()
    return [_block(path, text, found) for found in FENCE.finditer(text)]


def _block(path: Path, text: str, found: re.Match[str]) -> Block:
    before = text[: found.start()]
    mark = MARK.search(before)
    place = str(path.relative_to(ROOT))
    line = before.count("\n") + 1
    return Block(place, line, found[1], found[2] or "", found[3], mark[1].strip() if mark else None)
