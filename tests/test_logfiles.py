"""Logs that are full are put aside, and not too many of them are kept."""

from __future__ import annotations

from pathlib import Path

from esper.runtime.logfiles import rotate


def test_a_full_log_goes_on_empty_for_whoever_writes_to_it(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with log.open("ab", buffering=0) as writer:
        for number in range(5):
            writer.write(b"%d" % number * 10)
            assert rotate(log, 9, kept=2)
            writer.write(b"+")

    assert log.read_bytes() == b"+"
    assert (tmp_path / "x.log.1").read_bytes() == b"+" + b"4" * 10
    assert (tmp_path / "x.log.2").read_bytes() == b"+" + b"3" * 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.log", "x.log.1", "x.log.2"]


def test_a_log_that_is_not_full_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "x.log"

    assert not rotate(log, 9, kept=2)
    log.write_bytes(b"123456789")
    assert not rotate(log, 9, kept=2)
