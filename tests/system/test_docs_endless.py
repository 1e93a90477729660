"""What a page shows that goes on until it is interrupted: it comes up, and Ctrl-C ends it as its help says."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from esper.bus import connect
from esper.cli import manual
from tests.pages import Block, typed_by
from tests.reader import left, reading
from tests.system.processes import Esper
from tests.system.terminal import on_a_terminal

SHOWN = typed_by("tests/system/test_docs_endless.py")
SIGNS = {
    "export prometheus": "/metrics",
    "web": "http://",
    "redis": "unix://",
    "bench worker": " sent ",
    "bench soak": "training.unsteered",  # the first sample comes after minutes
}
"""By the words after `esper`: what it says once it is at work."""
PORTS = {"export prometheus": "9464", "web": "8470"}
"""Which may be somebody else's: a free one is taken instead."""
DRAWN = b"LAG"
GROUPS = (("export", "top", "redis"), ("web",), ("bench",))
"""What is up at the same time."""


@dataclass
class Typist:
    """One reader in a folder: what he has started, and where the newest page is served."""

    place: Path
    ending: ExitStack
    started: dict[str, tuple[str, Esper]] = field(default_factory=dict)
    port: str = ""

    def type(self, command: str) -> None:
        """One line of a page."""
        program, *words = command.split()
        if program != "esper":
            self._at_a_shell(command.replace(PORTS["web"], self.port))
        elif words[0] == "top":
            self._on_a_screen(words)
        else:
            self._start(command, words)

    def _at_a_shell(self, command: str) -> None:
        ended = subprocess.run(["bash", "-c", command], cwd=self.place, capture_output=True, text=True, timeout=140)
        assert ended.returncode == 0, command + ended.stderr
        assert not command.startswith("curl") or '"entry' in ended.stdout, ended.stdout

    def _on_a_screen(self, words: Sequence[str]) -> None:
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.place)}
        with on_a_terminal(words, self.place, environment) as terminal:
            terminal.shows(DRAWN)
            terminal.press(b"q")

            assert terminal.ended() == 0

    def _start(self, command: str, words: Sequence[str]) -> None:
        path = next(path for path in SIGNS if " ".join(words).startswith(path))
        process = Esper(self.place, *(elsewhere(path, words) if path in PORTS else words))
        self.ending.callback(process.kill)
        said = process.says(SIGNS[path])
        self.started[command] = path, process
        if found := re.search(r":(\d+)/", said):
            self.port = found[1]

    def interrupt(self) -> dict[str, int]:
        """Ctrl-C for each that goes on; how it ended."""
        for _, process in self.started.values():
            process.interrupt()
        return {command: process.ended() for command, (_, process) in self.started.items()}

    def documented(self) -> dict[str, int]:
        """How the help of each says that it ends."""
        known = {path: manual.PAGES[path].done == manual.DONE for path in SIGNS}
        return {command: 130 if known[path] else 0 for command, (path, _) in self.started.items()}


def each() -> Iterator[tuple[str, str]]:
    """Every line once, and the word after `esper` of its block."""
    lines = dict.fromkeys((kind_of(block), command) for block in SHOWN for command in block.commands)
    yield from lines


def kind_of(block: Block) -> str:
    found = [command.split()[1] for command in block.commands if command.startswith("esper ")]
    return found[0] if found else "web"  # what asks the page that is up


def elsewhere(path: str, words: Sequence[str]) -> list[str]:
    """The same on a free port."""
    told = [word for word in words if word not in ("--port", "0", PORTS[path])]
    return [*told, "--port", "0"]


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_no_block_is_of_a_kind_that_is_not_typed() -> None:
    assert {kind for kind, _ in each()} == {kind for group in GROUPS for kind in group}


@pytest.mark.parametrize("group", GROUPS, ids="-".join)
async def test_it_comes_up_and_ends_as_its_help_says(
    group: tuple[str, ...],
    runtime: Path,
    redis_url: str,
    redis: connect.Redis,
    monkeypatch: pytest.MonkeyPatch,
    ending: ExitStack,
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    commands = [command for kind, command in each() if kind in group]
    if missing := [name for name in ("curl", "openssl") if name in "".join(commands) and not shutil.which(name)]:
        pytest.skip(f"{' and '.join(missing)} is not installed")
    async with reading(runtime, redis_url, redis, monkeypatch):
        place = runtime / "runtime"  # where it is listed
        monkeypatch.setenv("XDG_STATE_HOME", str(place))
        left(place)
        typist = Typist(place, ending)

        for command in commands:
            await asyncio.to_thread(typist.type, command)

        assert await asyncio.to_thread(typist.interrupt) == typist.documented()
