"""`esper demo` on a terminal that was stopped by Ctrl-S, or read by nobody: nothing of the run waits for who reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.faults.processes import wait_until
from tests.system.processes import PATIENCE_S
from tests.system.terminal import on_a_terminal
from tests.unread_kit import unread

STOP, GO_ON = b"\x13", b"\x11"
DEMO = ("demo", "--seconds", "1", "--workers", "1")


def test_a_demo_comes_to_its_end_on_a_terminal_that_was_stopped(runtime: Path) -> None:
    with on_a_terminal(DEMO, runtime, {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}) as screen:
        screen.press(STOP)

        wait_until(lambda: bool(summaries(runtime)), "there is a summary", PATIENCE_S)
        screen.press(GO_ON)
        status = screen.ended()

    assert status == 1
    assert b"the demo took longer than 1 s" in screen.written
    assert json.loads(summaries(runtime)[0])["ok"] is False


def test_a_demo_that_fails_says_so_though_nobody_reads_what_it_did(runtime: Path) -> None:
    arguments = ["-m", "esper.cli.main", *DEMO]
    ended = unread(arguments, environment={"XDG_RUNTIME_DIR": str(runtime)}, timeout_s=200, folder=runtime)

    assert ended.returncode == 1
    assert ended.stderr.startswith("esper: the demo took longer than 1 s; it was at: ")


def summaries(runtime: Path) -> list[str]:
    """Whole ones."""
    return [text for path in runtime.glob("runs/*/summary.json") if (text := path.read_text()).endswith("}\n")]
