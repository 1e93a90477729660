"""A private place for the runs of one test, and commands that do not outlive it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from esper.bus.embedded import EmbeddedRedis
from tests.faults.nursery import nursed, shared
from tests.faults.processes import ROOT, Running
from tests.system.processes import Esper, Start

if TYPE_CHECKING:  # with torch, which the process does without whose workers run the tests
    from tests.system.loop import Scripted
    from tests.system.scripted import Script
    from tests.system.town import Town

# By what they took in processor time and in waiting: begun last, the longest would run on while other workers are done.
LONGEST_FIRST = [
    f"test_{name}.py"
    for name in (
        *("faults", "interrupts", "demo", "bench_measurements", "torchrun_nodes", "docs_kept", "bench_soak"),
        *("tutorial", "matrix", "torchrun", "docs_endless", "compose", "cluster", "redis_trouble", "bench_rows"),
        *("up_torchrun", "flipped_element", "two_ranks", "deep_rollback", "resumed_commands", "checkpoint_trials"),
        *("callbacks_steered", "bench_worker", "bench_telemetry"),
    )
]


ROLES = ("commander", "follower", "leader", "listener", "metrics", "poisoned", "publisher", "rank", "reader", "witness")
OF_RUNS = [f"esper.workers.{name}" for name in ("coordinator", "regional", "global_")]
SCRIPTS = [f"esper.examples.{name}" for name in ("grow_digits", "hostile")]
TRAINERS = ["esper.workers.trainer", "esper.examples.torchrun_digits", "tests.system.flipped"]
LIGHT = [*(f"tests.faults.roles.{name}" for name in (*ROLES, "worker", "aggregator")), *OF_RUNS, *SCRIPTS]
HEAVY = [
    *(f"tests.system.{name}" for name in ("both_resume", "deep", "pruned", "rank", "resumed", "sharded", "taught")),
    *("tests.faults.roles.grower", "esper.workers.coordinator", "torch.distributed.run", *TRAINERS),
]
"""What the workers of a session fork off two processes; these with torch."""

HANDED = Path(__file__).parent / "handed"

LIMIT_S = 600.0
"""For each test: only a hang takes as long. At load 17 one that takes 41 s of processor time had not ended in 240."""


def pytest_configure(config: pytest.Config) -> None:
    """In the process whose workers run the tests: they share its nurseries, of which each would have had two."""
    if config.getoption("numprocesses", 0) and not hasattr(config, "workerinput"):
        directory = Path(tempfile.mkdtemp(prefix="esper-"))
        stack = ExitStack()
        config.add_cleanup(stack.close)
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        stack.enter_context(shared(directory, {"light": LIGHT, "heavy": HEAVY}))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The rest keep their order, and each file's tests theirs."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(LIMIT_S))
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))


@pytest.fixture
def runtime() -> Iterator[Path]:
    """Where runs are listed and leave their logs; its path is short enough for a unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="esper-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def esper(runtime: Path) -> Iterator[Callable[..., Esper]]:
    """Starts an `esper` command."""
    with commands(runtime, {}) as start:
        yield start


@pytest.fixture
def swift(runtime: Path, handed: Mapping[str, str]) -> Iterator[Callable[..., Esper]]:
    """The same, of which nurseries fork the servers, trainers and scripts: for what is not about how these begin."""
    with commands(runtime, handed) as start:
        yield start


@contextmanager
def commands(runtime: Path, told: Mapping[str, str]) -> Iterator[Callable[..., Esper]]:
    started: list[Esper] = []

    def start(*arguments: str | Path) -> Esper:
        started.append(Esper(runtime, *arguments, told=told))
        return started[-1]

    yield start
    for command in started:
        command.kill()


@pytest.fixture(scope="session")
def handed(short_directory: Path) -> Iterator[Mapping[str, str]]:
    """In the environment of a command: see tests/system/handed/sitecustomize.py."""
    places = [short_directory / "servers", short_directory / "trainers"]
    for place in places:
        place.mkdir()
    with nursed(places[0], [*OF_RUNS, *SCRIPTS]) as servers, nursed(places[1], HEAVY) as trainers:
        sockets = dict.fromkeys([*OF_RUNS, *SCRIPTS], servers.socket) | dict.fromkeys(TRAINERS, trainers.socket)
        told = short_directory / "handed"  # no variable: processes are known by the words of their environment
        told.write_text("".join(f"{module} {socket}\n" for module, socket in sockets.items()))
        folders = [str(HANDED), str(ROOT), os.environ.get("PYTHONPATH", "")]
        yield {"HANDED_OVER": str(told), "PYTHONPATH": os.pathsep.join(filter(None, folders))}


@pytest.fixture
def script(redis_url: str, run_id: str, tmp_path: Path) -> Script:
    """A coordinator and a controller whose words are the test's."""
    from tests.system.scripted import Script

    return Script(redis_url, run_id, tmp_path)


@pytest.fixture
def loop(script: Script) -> Iterator[Scripted]:
    """A trainer that the script steers."""
    from tests.system.loop import Scripted

    loop = Scripted(script)
    yield loop
    loop.run.close()


@pytest.fixture(scope="session")
def born(short_directory: Path) -> Iterator[Start]:
    """Starts the servers of runs without what each would import: a second of processor time, on a slow machine."""
    with nursed(short_directory, OF_RUNS) as nursery:
        yield nursery.started


@pytest.fixture(scope="session")
def ranks(short_directory: Path) -> Iterator[Start]:
    """Starts ranks, and a torchrun, without what each would import: five seconds of processor time, mostly torch's."""
    place = short_directory / "ranks"
    place.mkdir()
    with nursed(place, HEAVY) as nursery:
        yield nursery.started


@pytest.fixture(scope="session")
def launch(ranks: Start, handed: Mapping[str, str]) -> Start:
    """Starts a torchrun of which each rank, too, is forked each time that it begins."""

    def start(module: str, log: Path, environment: Mapping[str, str], /, *words: str) -> Running:
        return ranks(module, log, {**environment, **handed}, *words)

    return start


@pytest.fixture
def town(server: EmbeddedRedis, run_id: str, tmp_path: Path, born: Start) -> Iterator[Town]:
    """Servers as processes on that Redis, and a trainer in this one."""
    from tests.system.town import Town

    town = Town(server, run_id, tmp_path, start=born)
    yield town
    town.close()


@pytest.fixture
def coordinated(server: EmbeddedRedis, run_id: str, tmp_path: Path, born: Start) -> Iterator[Town]:
    """The same without the tiers."""
    from tests.system.town import Town

    town = Town(server, run_id, tmp_path, servers=["coordinator"], start=born)
    yield town
    town.close()
