"""A report is written whole: what cannot be written leaves the one before it as it was, and nothing beside it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from esper.bench.output.placed import place
from esper.errors import SettingError


def test_a_file_is_written_in_the_stead_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "made" / "report.json"

    place("before", path)
    place("after", path)

    assert path.read_text() == "after"
    assert os.listdir(path.parent) == ["report.json"]


def test_whoever_reads_meanwhile_goes_on_with_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    place("before", path)

    with path.open() as reader:
        place("after", path)
        assert reader.read() == "before"


def test_what_cannot_be_written_leaves_the_one_before_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    place("before", path)

    with pytest.raises(UnicodeEncodeError):
        place("torn in the middle " * 10_000 + "\ud800", path)

    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_link_stays_one_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    link, pipe = tmp_path / "report.json", tmp_path / "pipe"
    link.symlink_to(tmp_path / "kept" / "report.json")
    os.mkfifo(pipe)
    heard: list[str] = []
    reading = threading.Thread(target=lambda: heard.append(pipe.read_text()), daemon=True)  # nobody may write to it
    reading.start()

    place("linked", link)
    place("piped", pipe)

    reading.join()
    assert link.is_symlink() and (tmp_path / "kept" / "report.json").read_text() == "linked"
    assert heard == ["piped"]


def test_a_place_that_can_not_be_written_to_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(SettingError, match=r"--out is '.*/file/report\.json'; expected a place that can be written to"):
        place("text", tmp_path / "file" / "report.json")
