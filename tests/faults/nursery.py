"""Roles forked off one process that has imported what they need, to be killed by the hundred."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.faults.processes import Child, Process, Running, wait_until

BORN_S = 60.0
READY_S = 150.0  # torch takes five seconds of processor time, of which a core gives a twelfth at load 25


class Nursery(Process):
    """The process that they are forked off; they die with it."""

    def __init__(self, directory: Path, modules: Sequence[str]) -> None:
        self.socket = directory / "nursery.sock"
        arguments = {"modules": list(modules), "socket": str(self.socket)}
        super().__init__("tests.faults.roles.nursery", arguments, directory / "nursery.log")

    def start(self) -> Self:
        """Return once it has imported everything."""
        super().start()
        wait_until(lambda: self.socket.exists() or not self.alive, "the nursery is ready", READY_S)
        assert self.alive, self.last_words()
        return self

    def role(
        self, module: str, arguments: Mapping[str, Any], log: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """One more role, not yet started."""
        return Forked(self.socket, {"module": module, "arguments": arguments, "environment": environment or {}}, log)

    def started(self, module: str, log: Path, environment: Mapping[str, str]) -> Running:
        """`python -m module`, but for the imports."""
        return Born(self.socket, {"module": module, "arguments": {}, "environment": environment, "log": str(log)})


class Forked(Child):
    """A child of the nursery."""

    def __init__(self, place: Path, order: Mapping[str, Any], log: Path) -> None:
        super().__init__(log)
        self._place, self._order = place, {**order, "log": str(log)}

    def _launched(self) -> Running:
        return Born(self._place, self._order)


class Born:
    """What the nursery tells of a child: its id at once, how it ended when it has."""

    def __init__(self, place: Path, order: Mapping[str, Any]) -> None:
        self.args = order["module"]
        self._code: int | None = None
        self._told = b""
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(BORN_S)
        self._connection.connect(str(place))
        self._connection.sendall(json.dumps(order).encode() + b"\n")
        self.pid = int(self._line())

    @property
    def returncode(self) -> int | None:
        """None until somebody has seen it end."""
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # the nursery has buried it, and is about to tell
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            self._connection.settimeout(timeout)
            try:
                self._code = int(self._line())
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0) from None
            self._connection.close()
        return self._code

    def _line(self) -> bytes:
        while b"\n" not in self._told:
            data = self._connection.recv(64)
            assert data, "the nursery is gone"
            self._told += data
        line, _, self._told = self._told.partition(b"\n")
        return line
