"""What goes to a terminal or a pipe never holds up whoever writes it, and takes nobody along that reads no more."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from esper.cli.interrupting import ends
from esper.cli.output.terminal import MOST_WAITING, Terminal, terminal


def test_what_is_written_comes_out_in_order() -> None:
    reading, writing = os.pipe()

    with terminal(writing) as made:
        made.write("one\n")
        made.write("zwölf\n")
    os.close(writing)

    with open(reading, encoding="utf-8") as pipe:
        assert pipe.read() == "one\nzwölf\n"


def test_a_pipe_that_is_full_holds_up_nobody() -> None:
    reading, writing = os.pipe()
    line = "x" * 1_000

    with terminal(writing) as made:
        for _ in range(2 * MOST_WAITING):  # far more than what waits and the pipe hold together
            made.write(line)
            made.flush()

        assert os.read(reading, 1_000) == line.encode()
        os.close(reading)
    os.close(writing)


def test_a_late_reader_gets_whole_lines_and_all_that_waited() -> None:
    reading, writing = os.pipe()
    made, pieces = Terminal(writing), ("a" * 100, "b" * 100, "\n")
    for _ in range(2 * MOST_WAITING):
        for piece in pieces:
            made.write(piece)
        made.flush()

    with ThreadPoolExecutor(1) as others, open(reading, encoding="utf-8") as pipe:
        others.submit(made.finish, 60.0).add_done_callback(lambda _: os.close(writing))
        lines = pipe.readlines()

    assert set(lines) == {"".join(pieces)}
    assert len(lines) >= MOST_WAITING


def test_a_reader_who_is_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)

    with terminal(writing) as made:
        written = made.write("gone\n")
    os.close(writing)

    assert written == 5


def test_a_run_started_by_nohup_outlives_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    under_nohup = ends()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    otherwise = ends()
    signal.signal(signal.SIGHUP, before)

    assert set(otherwise) - set(under_nohup) == {signal.SIGHUP}
