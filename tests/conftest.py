"""One real redis-server for the whole suite; every test works in a run of its own."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop

from esper.bus import connect
from esper.bus.embedded import EmbeddedRedis
from esper.bus.names import new_run_id
from esper.client import Controller
from esper.runtime import notify
from tests.bus_kit import own_server
from tests.faults.nursery import nursed
from tests.forked_kit import PRELOADED, WITH_TORCH, Forge
from tests.scripted import ScriptedRun, listed

if TYPE_CHECKING:
    from tests.tiers import Tiers

pytest_plugins = ["tests.stuck"]

NUMBERS = count()

gc.disable()  # until all conftests are loaded: what they import stays

# Whoever starts tests in the background of a shell has Ctrl-C ignored, and so would every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A shell in which somebody steers a run has ESPER_RUN set; some say how wide their terminal is and what it can, and
# tables are cut to that, and coloured or plain; a hook of git says which repository it is of, and what a test commits
# would go there; and a proxy would be asked for servers of this machine.
OF_A_TERMINAL = ("COLUMNS", "LINES", "TERM", "NO_COLOR", "FORCE_COLOR", "PY_COLORS")
OF_A_SHELL = (*OF_A_TERMINAL, "GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE")
for variable in [name for name in os.environ if name.startswith("ESPER_") or name in OF_A_SHELL]:
    del os.environ[variable]
os.environ["no_proxy"] = "*"

# The path of a socket has at most 107 bytes, of which what tests append to this takes up to 60.
if len(os.fsencode(tempfile.gettempdir())) > 40:
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"


def pytest_addoption(parser: pytest.Parser) -> None:
    """What tests/system/test_matrix.py varies."""
    matrix = parser.getgroup("esper")
    matrix.addoption("--redis-server", type=Path, help="the server's binary; default: the embedded one")
    matrix.addoption("--resp", choices=("2", "3"), default="2", help="version of the protocol that is spoken to it")
    matrix.addoption("--loop", choices=("asyncio", "uvloop"), default="asyncio")


class OnUvloop:
    """Runs every test that awaits something on uvloop."""

    def pytest_asyncio_loop_factories(self) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
        return {"uvloop": uvloop.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    """A hook rather than a fixture: where nobody asks for uvloop, the ids of tests stay as they are."""
    if config.getoption("--loop") == "uvloop":
        config.pluginmanager.register(OnUvloop())


def pytest_sessionstart() -> None:
    """From here on, in a process that collects no tests as well."""
    gc.enable()


def pytest_collectstart() -> None:
    """What imports make stays: collecting garbage between them finds nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    """The collector walks what tests make, and not the modules that a worker holds, torch's among them.

    Those were 4.3 of 36.6 s of processor time in 455 tests.
    """
    gc.enable()
    gc.freeze()


@pytest.hookimpl(trylast=True)  # a fixture thaws as well
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A benchmark thaws everything at its end. Freezing takes no time, where counting what is frozen takes 70 ms."""
    if item.path.name.startswith("test_bench"):
        gc.freeze()


def pytest_sessionfinish() -> None:
    """Whatever is left behind is found at the end, as without this; pytest looks five times more."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def short_directory() -> Iterator[Path]:
    """A private directory whose path is short enough for a unix socket, which pytest's own are not."""
    directory = Path(tempfile.mkdtemp(prefix="esper-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_url(short_directory: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of the suite's server."""
    binary, resp = request.config.getoption("--redis-server"), request.config.getoption("--resp")
    with EmbeddedRedis(short_directory / "suite", binary=binary) as server:
        yield server.url if resp == "2" else f"{server.url}?protocol={resp}"


@pytest.fixture(scope="session")
def forge(short_directory: Path) -> Iterator[Forge]:
    """Commands and processes without what each would import anew."""
    place = short_directory / "forge"
    place.mkdir()
    with nursed(place, PRELOADED) as cradle:
        yield Forge(cradle)


@pytest.fixture(scope="session")
def torch_forge(short_directory: Path) -> Iterator[Forge]:
    """Scripts that train, without what each would import anew: five seconds of processor time, torch's mostly."""
    place = short_directory / "torch"
    place.mkdir()
    with nursed(place, WITH_TORCH) as cradle:
        yield Forge(cradle)


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
def server(short_directory: Path) -> Iterator[EmbeddedRedis]:
    """A Redis that only this test harms."""
    with own_server(short_directory) as own:
        yield own


@pytest.fixture
def listens(short_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Whoever has started this process; none of its calls waits."""
    path = str(short_directory / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
        channel.bind(path)
        monkeypatch.setenv(notify.SOCKET, path)
        yield channel
    Path(path).unlink()


@pytest.fixture
def process_group() -> Iterator[None]:
    """Of gloo, with this rank alone."""
    import torch.distributed as dist  # most tests that ask for nothing here train nothing either

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    yield
    dist.destroy_process_group()


@pytest.fixture
def run_id() -> str:
    """A run that no other test knows, whatever is drawn."""
    return new_run_id(f"test-{next(NUMBERS)}")


@pytest.fixture
async def tiers(redis: connect.Redis, redis_reader: connect.Redis, run_id: str) -> Tiers:
    """Both of one run."""
    from tests.tiers import Tiers  # most tests fold nothing

    return await Tiers(redis, redis_reader, run_id).open()


@pytest.fixture
def run(
    short_directory: Path, redis_url: str, redis: connect.Redis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ScriptedRun]:
    """A run of two workers that the test plays."""
    with listed(short_directory, redis_url, redis, monkeypatch) as scripted:
        yield scripted


@pytest.fixture
async def controller(run: ScriptedRun) -> AsyncIterator[Controller]:
    """Found by the run's name alone."""
    async with Controller.connect(run.name) as connected:
        yield connected
