"""docs/ as a site: every link leads somewhere, every page is in the navigation, and nothing is fetched from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT

LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?((?:https?:)?//[^\" >]+)")


def test_the_site_builds_strictly_and_loads_nothing_from_outside(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="needs the extra 'docs': pip install '.[docs]'")

    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)

    assert built.returncode == 0, built.stderr
    pages = {page.relative_to(tmp_path): page.read_text() for page in tmp_path.rglob("*.html")}
    assert len(pages) > 25
    assert {str(page): LOADED.findall(text) for page, text in pages.items() if LOADED.search(text)} == {}
    assert not re.search(r"url\(['\"]?https?:", "".join(sheet.read_text() for sheet in tmp_path.rglob("*.css")))
