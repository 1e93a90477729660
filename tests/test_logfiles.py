"""Logs that are full are put aside, and not too many of them are kept."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

from structlog.testing import capture_logs

from esper.runtime.crew.logfiles import kept_short, rotate
from esper.runtime.ending import end


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


async def test_a_log_that_can_not_be_put_aside_stays_and_the_others_are_looked_after(tmp_path: Path) -> None:
    stuck, other, aside = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "b.log.1"
    for log in (stuck, other):
        log.write_bytes(b"0123456789")
    (tmp_path / "a.log.1").write_bytes(b"older")
    (tmp_path / "a.log.new").mkdir()

    watch = asyncio.create_task(kept_short(tmp_path, 9, kept=2, every_s=0.0))
    while not aside.exists() or other.stat().st_size:  # it is emptied last
        await asyncio.sleep(0)
    other.write_bytes(b"9876543210")
    while not (tmp_path / "b.log.2").exists() or other.stat().st_size:
        await asyncio.sleep(0)
    await end([watch])

    assert (aside.read_bytes(), other.read_bytes()) == (b"9876543210", b"")
    assert (stuck.read_bytes(), (tmp_path / "a.log.1").read_bytes()) == (b"0123456789", b"older")


async def test_logs_are_looked_after_again_once_there_are_descriptors_to_list_them(tmp_path: Path) -> None:
    log, limits = tmp_path / "x.log", resource.getrlimit(resource.RLIMIT_NOFILE)
    log.write_bytes(b"0123456789")
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with capture_logs() as told:
            watch = asyncio.create_task(kept_short(tmp_path, 9, kept=2, every_s=0.0))
            while not told and not watch.done():
                await asyncio.sleep(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    while log.stat().st_size and not watch.done():
        await asyncio.sleep(0)
    await end([watch])

    assert (log.read_bytes(), (tmp_path / "x.log.1").read_bytes()) == (b"", b"0123456789")
