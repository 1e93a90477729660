"""A private place for the runs of one test, and commands that do not outlive it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.processes import Esper


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
