"""Roles forked off one process that has imported what they need, to be killed by the hundred."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from tests.faults.processes import Child, Process, Running, has_ended, wait_until

SHARED = "NURSERIES"
"""In the environment: sockets of the nurseries that a session shares. Beside each lies, as JSON, its process and what
it imports: what tests start has the same environment, and some of it is known by the modules that it names."""
BORN_S = 60.0
READY_S = 150.0  # torch takes five seconds of processor time, of which a core gives a twelfth at load 25


class Cradle:
    """Where children are asked for: the socket of a nursery, whoever has started it."""

    def __init__(self, place: Path) -> None:
        self.socket = place

    def role(
        self, module: str, arguments: Mapping[str, Any], log: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """One more role, not yet started."""
        return Forked(self.socket, {"module": module, "arguments": arguments, "environment": environment or {}}, log)

    def started(self, module: str, log: Path, environment: Mapping[str, str], *words: str) -> Running:
        """`python -m module`, with these as arguments, but for the imports."""
        return Born(self.socket, {"module": module, "words": words, "environment": environment, "log": str(log)})


class Nursery(Cradle, Process):
    """The process that they are forked off; they die with it."""

    def __init__(self, directory: Path, modules: Sequence[str]) -> None:
        Cradle.__init__(self, directory / "nursery.sock")
        arguments = {"modules": list(modules), "socket": str(self.socket)}
        Process.__init__(self, "tests.faults.roles.nursery", arguments, directory / "nursery.log")

    def begin(self) -> Self:
        """Return at once, while it imports."""
        return super().start()

    def start(self) -> Self:
        """Return once it has imported everything."""
        self.begin()
        wait_until(lambda: self.socket.exists() or not self.alive, "the nursery is ready", READY_S)
        assert self.alive, self.last_words()
        return self


@contextmanager
def nursed(directory: Path, modules: Sequence[str]) -> Iterator[Cradle]:
    """A nursery that has imported these: one that the session shares, or else an own one, for as long as the block."""
    for place in map(Path, filter(None, os.environ.get(SHARED, "").split(os.pathsep))):
        told = json.loads(place.with_suffix(".json").read_text())
        if {*modules} <= {*told["modules"]}:
            yield lent(place, told["pid"])
            return
    with Nursery(directory, modules) as own:
        yield own


def lent(place: Path, pid: int) -> Cradle:
    """That of the session, once it is ready. One that could not import something has ended, and says so at once."""
    wait_until(lambda: place.exists() or has_ended(pid), "the nursery of the session is ready", READY_S)
    assert place.exists(), place.with_suffix(".log").read_text(errors="replace")[-2000:]
    return Cradle(place)


@contextmanager
def shared(directory: Path, kinds: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Nurseries for every process of a session that starts meanwhile; they import beside what follows."""
    with ExitStack() as stack:
        places = []
        for name, modules in kinds.items():
            (directory / name).mkdir()
            nursery = Nursery(directory / name, modules)
            stack.callback(nursery.discard)
            nursery.begin()
            told = {"pid": nursery.pid, "modules": list(modules)}
            nursery.socket.with_suffix(".json").write_text(json.dumps(told))
            places.append(str(nursery.socket))
        os.environ[SHARED] = os.pathsep.join(places)
        stack.callback(os.environ.pop, SHARED, None)
        yield


class Forked(Child):
    """A child of the nursery."""

    def __init__(self, place: Path, order: Mapping[str, Any], log: Path) -> None:
        super().__init__(log)
        self._place, self._order = place, {**order, "log": str(log)}

    def _launched(self) -> Running:
        return Born(self._place, self._order)


class Born:
    """What the nursery tells of a child: its id at once, how it ended when it has.

    `streams` are descriptors of its standard input, output and error; without them its output goes to the order's log.
    """

    def __init__(self, place: Path, order: Mapping[str, Any], streams: Sequence[int] = ()) -> None:
        self.args = [order.get("module", "-c"), *order.get("words", ())]
        self._code: int | None = None
        self._told = b""
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(BORN_S)
        self._connection.connect(str(place))
        line = json.dumps(order).encode() + b"\n"
        self._connection.sendall(line[socket.send_fds(self._connection, [line], streams) :])
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
