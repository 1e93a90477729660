"""A private place for the runs of one test, and commands that do not outlive it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from esper.bus.embedded import EmbeddedRedis
from tests.bus_kit import own_server
from tests.system.loop import Scripted
from tests.system.processes import Esper
from tests.system.scripted import Script
from tests.system.town import Town


@pytest.fixture
def runtime() -> Iterator[Path]:
    """Where runs are listed and leave their logs; its path is short enough for a unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="esper-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def esper(runtime: Path) -> Iterator[Callable[..., Esper]]:
    """Starts an `esper` command."""
    started: list[Esper] = []

    def start(*arguments: str | Path) -> Esper:
        started.append(Esper(runtime, *arguments))
        return started[-1]

    yield start
    for command in started:
        command.kill()


@pytest.fixture
def script(redis_url: str, run_id: str, tmp_path: Path) -> Script:
    """A coordinator and a controller whose words are the test's."""
    return Script(redis_url, run_id, tmp_path)


@pytest.fixture
def loop(script: Script) -> Iterator[Scripted]:
    """A trainer that the script steers."""
    loop = Scripted(script)
    yield loop
    loop.run.close()


@pytest.fixture
def server(short_directory: Path) -> Iterator[EmbeddedRedis]:
    """A Redis that only this test harms."""
    with own_server(short_directory) as own:
        yield own


@pytest.fixture
def town(server: EmbeddedRedis, run_id: str, tmp_path: Path) -> Iterator[Town]:
    """Servers as processes on that Redis, and a trainer in this one."""
    town = Town(server, run_id, tmp_path)
    yield town
    town.close()
