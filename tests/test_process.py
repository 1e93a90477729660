"""A process ends in order by a signal, at once by a second one, and with one line by an error of ours."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROCESS = """
import asyncio
from esper.errors import BusError, SettingError
from esper.runtime import logging, process
from esper.runtime.settings import Settings

logging.configure(Settings())

async def main(stopping: asyncio.Event) -> None:
    print("up", flush=True)
    {body}
    print("down", flush=True)

process.run(main)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_process_finish(number: signal.Signals) -> None:
    process = started("await stopping.wait()")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"

    process.send_signal(number)
    rest, _ = process.communicate()

    assert (rest, process.returncode) == ("down\n", 0)


def test_a_second_signal_ends_it_at_once() -> None:
    process = started("await stopping.wait(); print('stopping', flush=True); await asyncio.Event().wait()")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"

    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate()

    assert (rest, process.returncode) == ("", 1)


@pytest.mark.parametrize(
    ("body", "status"), [("raise BusError('gone')", 1), ("raise SettingError('ESPER_X', 1, 'two')", 2)]
)
def test_an_error_of_ours_is_one_line_and_an_exit_status(body: str, status: int) -> None:
    process = started(body)
    _, said = process.communicate()

    assert process.returncode == status
    assert len(said.splitlines()) == 1
    assert "process.failed" in said


def started(body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS.format(body=body)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
