"""Commands and scripts forked off one process that has imported what they need, each with streams of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from tests.faults.nursery import Born, Cradle

COMMANDS = ("bench.run", "checkpoints", "doctor", "keys", "log", "main", "publish", "redis", "replay", "verify")
PRELOADED = [
    *(f"esper.cli.{name}" for name in COMMANDS),
    *(f"esper.workers.{name}" for name in ("coordinator", "regional", "global_")),
    "esper.bench.runner",
]
"""What these would import for half a second and more, each time anew. An interpreter of its own remains with tests of
what an interpreter does before and while it imports."""
WITH_TORCH = ["esper.session.attach"]
ENDED_S = 150.0


class Forge:
    """Starts them, and waits for those that end by themselves."""

    def __init__(self, cradle: Cradle) -> None:
        self._place = cradle.socket

    def started(
        self,
        program: Mapping[str, Any],
        streams: Sequence[int],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Born:
        """With these as standard input, output and error. `program` is what script() or module() gives."""
        order = {**program, "environment": environment or {}} | ({"folder": str(folder)} if folder else {})
        return Born(self._place, order, streams)

    @contextmanager
    def talking(
        self, program: Mapping[str, Any], environment: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> Iterator[tuple[Born, IO[str], IO[str]]]:
        """With its standard output, line by line, and its standard error; it does not outlive the block."""
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        with open(out) as output, open(err) as errors, open(os.devnull) as nothing:
            try:
                born = self.started(program, [nothing.fileno(), out_end, err_end], environment, folder)
            finally:
                os.close(out_end)
                os.close(err_end)
            try:
                yield born, output, errors
            finally:
                born.kill()

    def ended(
        self,
        program: Mapping[str, Any],
        *,
        stdout: int | None = None,
        stderr: int | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """How it ended, and what it said, but for what went to a descriptor of the caller's."""
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err, open(os.devnull) as nothing:
            streams = [nothing.fileno(), stdout or out.fileno(), stderr or err.fileno()]
            born = self.started(program, streams, environment, folder)
            try:
                code = born.wait(ENDED_S)
            finally:
                born.kill()
            return subprocess.CompletedProcess(born.args, code, told(out), told(err))


def script(text: str, *words: str) -> dict[str, Any]:
    """As `python -c text words...`."""
    return {"text": text, "words": words}


def module(name: str, *words: str) -> dict[str, Any]:
    """As `python -m name words...`."""
    return {"module": name, "words": words}


def told(stream: IO[str]) -> str:
    stream.seek(0)
    return stream.read()
