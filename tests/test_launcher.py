"""A rank ends with the torchrun that started it, and no other trainer with whoever started that."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from esper.errors import EvictedError
from esper.runtime.beside.launcher import launcher_gone, launcher_of
from esper.runtime.crew.procs import look

LAUNCHES = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"]).pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def launcher() -> Iterator[subprocess.Popen[str]]:
    """A process with a trainer, whose number it says; both end with its standard input."""
    started = subprocess.Popen(
        [sys.executable, "-c", LAUNCHES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield started
    started.kill()
    started.communicate()


def trainer_of(launcher: subprocess.Popen[str]) -> int:
    assert launcher.stdout is not None
    return int(launcher.stdout.readline())


async def test_a_rank_ends_once_its_launcher_was_killed(launcher: subprocess.Popen[str]) -> None:
    trainer = trainer_of(launcher)
    watching = asyncio.create_task(launcher_gone(trainer, launcher.pid, look_s=0.01))
    done, _ = await asyncio.wait([watching], timeout=0.1)
    assert not done

    launcher.send_signal(signal.SIGKILL)

    said = rf"torchrun \({launcher.pid}\) has ended, and left this rank \({trainer}\) to nobody: it ends too"
    with pytest.raises(EvictedError, match=said):
        await asyncio.wait_for(watching, 120)


async def test_who_has_no_descriptor_left_to_look_with_looks_again(launcher: subprocess.Popen[str]) -> None:
    trainer, limits = trainer_of(launcher), resource.getrlimit(resource.RLIMIT_NOFILE)
    watching = asyncio.create_task(launcher_gone(trainer, launcher.pid, look_s=0.01))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        done, _ = await asyncio.wait([watching], timeout=0.1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not done

    launcher.send_signal(signal.SIGKILL)

    with pytest.raises(EvictedError, match="has ended, and left this rank"):
        await asyncio.wait_for(watching, 120)


@pytest.mark.parametrize(
    "who",
    ["a trainer without a launcher", "a trainer that has ended itself", "one whom somebody adopted after its end"],
)
async def test_nothing_is_said_of(who: str, launcher: subprocess.Popen[str]) -> None:
    trainer, watched = trainer_of(launcher), launcher.pid
    if who == "a trainer without a launcher":
        launcher.kill()
        watched = 0
    else:
        os.kill(trainer, signal.SIGKILL)
        while (found := look(trainer)) is None or not found.is_zombie:
            await asyncio.sleep(0)
        watched = launcher.pid if who == "a trainer that has ended itself" else os.getpid()

    watching = asyncio.create_task(launcher_gone(trainer, watched, look_s=0.01))
    done, _ = await asyncio.wait([watching], timeout=0.1)
    watching.cancel()

    assert not done


def test_only_torchrun_is_a_launcher() -> None:
    assert launcher_of({"TORCHELASTIC_RUN_ID": "7"}, 12) == 12
    assert launcher_of({"RANK": "0"}, 12) == 0
