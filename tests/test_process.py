"""A process ends in order by a signal, at once by a second one, and with one line by an error of ours."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.forked_kit import ENDED_S, Forge, script

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
def test_a_signal_lets_the_process_finish(number: signal.Signals, forge: Forge) -> None:
    with forge.talking(running("await stopping.wait()")) as (process, output, _):
        assert output.readline() == "up\n"

        process.send_signal(number)

        assert (output.read(), process.wait(ENDED_S)) == ("down\n", 0)


def test_a_second_signal_ends_it_at_once(forge: Forge) -> None:
    body = "await stopping.wait(); print('stopping', flush=True); await asyncio.Event().wait()"
    with forge.talking(running(body)) as (process, output, _):
        assert output.readline() == "up\n"

        process.send_signal(signal.SIGTERM)
        assert output.readline() == "stopping\n"
        process.send_signal(signal.SIGTERM)

        assert (output.read(), process.wait(ENDED_S)) == ("", 1)


@pytest.mark.parametrize(
    ("body", "status"), [("raise BusError('gone')", 1), ("raise SettingError('ESPER_X', 1, 'two')", 2)]
)
def test_an_error_of_ours_is_one_line_and_an_exit_status(body: str, status: int, forge: Forge) -> None:
    ended = forge.ended(running(body))

    assert ended.returncode == status
    assert len(ended.stderr.splitlines()) == 1
    assert "process.failed" in ended.stderr


def running(body: str) -> dict[str, Any]:
    return script(PROCESS.format(body=body))
