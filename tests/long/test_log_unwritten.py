"""A log that can't be written, as on a full disk, ends none of the processes that it tells of."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from esper.cli.output.quiet import log_to
from esper.runtime.beside import alarm
from esper.runtime.logging import Lines
from tests.forked_kit import Forge, script

WORKER = """
import structlog
from esper.runtime import logging
from esper.runtime.settings import Settings
logging.configure(Settings(), role="coordinator")
structlog.get_logger().info("epoch.released")
print("goes on")
"""
COMMAND = """
import structlog
from esper.cli.output.quiet import log_to_stderr
log_to_stderr()
structlog.get_logger().warning("log.waits_for_room")
print("goes on")
"""
EVICTED_TRAINER = """
import os, signal
from esper.runtime.beside.alarm import await_alarm
ring = await_alarm()
os.write(ring, b"round 4: the process group ends")
os.close(ring)
signal.pause()
"""


def test_a_supervisor_outlives_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "up.log").symlink_to("/dev/full")

    with log_to(tmp_path / "up.log"):
        structlog.get_logger().info("process.started", unit="global")


def test_what_is_logged_stands_in_the_file(tmp_path: Path) -> None:
    with log_to(tmp_path / "logs" / "up.log"):
        structlog.get_logger().info("process.started", unit="global")

    assert "process.started" in (tmp_path / "logs" / "up.log").read_text()


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("logs", [WORKER, COMMAND], ids=["worker", "command"])
def test_what_logs_to_its_stderr_outlives_a_full_disk(logs: str, unbuffered: str, forge: Forge) -> None:
    with open("/dev/full", "w") as full:
        ended = forge.ended(script(logs), stderr=full.fileno(), environment={"PYTHONUNBUFFERED": unbuffered})

    assert (ended.returncode, ended.stdout) == (0, "goes on\n")


def test_a_trainer_is_evicted_though_it_can_not_say_why(forge: Forge) -> None:
    with open("/dev/full", "w") as full:
        ended = forge.ended(script(EVICTED_TRAINER), stderr=full.fileno())

    assert ended.returncode == alarm.EVICTED


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its ends to read and to write; the one to write is closed by the test."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def test_a_line_of_which_a_signal_lets_out_a_part_is_written_to_its_end(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    line, read, writer = "x" * 1_000_000 + "\n", bytearray(), threading.get_ident()

    def reads() -> None:
        read.extend(os.read(reading, 1))  # the line is longer than a pipe: its writer waits in the middle of it
        signal.pthread_kill(writer, signal.SIGUSR1)
        while more := os.read(reading, 1 << 16):
            read.extend(more)

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    thread = threading.Thread(target=reads)
    thread.start()
    lines = Lines(writing)
    lines.write(line)
    lines.flush()
    os.close(writing)
    thread.join()
    signal.signal(signal.SIGUSR1, before)

    assert bytes(read) == line.encode()


def test_after_a_line_that_was_cut_the_next_one_begins_anew(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(writing, False)
    lines = Lines(writing)

    for text in ("x" * 1_000_000 + "\n", "lost\n"):
        lines.write(text)
        lines.flush()
    cut = os.read(reading, 1_000_000)
    lines.write("next\n")
    lines.flush()
    os.close(writing)

    assert set(cut) == set(b"x") and os.read(reading, 100) == b"\nnext\n"
