"""One real redis-server for the whole suite; every test works in a run of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from esper.bus import connect
from esper.bus.embedded import EmbeddedRedis
from esper.bus.names import new_run_id


@pytest.fixture(scope="session")
def short_directory() -> Iterator[Path]:
    """A private directory whose path is short enough for a unix socket, which pytest's own are not."""
    directory = Path(tempfile.mkdtemp(prefix="esper-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_url(short_directory: Path) -> Iterator[str]:
    """URL of the suite's server."""
    with EmbeddedRedis(short_directory / "suite") as server:
        yield server.url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[connect.Redis]:
    """A writer."""
    async with connect.writer(redis_url) as client:
        yield client


@pytest.fixture
async def redis_reader(redis_url: str) -> AsyncIterator[connect.Redis]:
    """A client for blocking reads."""
    async with connect.reader(redis_url) as client:
        yield client


@pytest.fixture
def run_id() -> str:
    """A run that no other test knows."""
    return new_run_id("test")
