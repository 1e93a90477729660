"""The trainer's end of the link to the runtime beside it."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from weakref import WeakSet, finalize

from esper.errors import RuntimeLostError
from esper.leyline import contracts as pb
from esper.leyline.frames import FrameDecoder, encode
from esper.runtime.beside.alarm import ALARM_FD, LAUNCHER_PID, TRAINER_PID, await_alarm
from esper.runtime.beside.doorbell import mapped, new_doorbell
from esper.runtime.beside.launcher import launcher_of

CONTROL_FD, ROWS_FD, FRESH = "ESPER_LINK_CONTROL_FD", "ESPER_LINK_ROWS_FD", "ESPER_LINK_FRESH"
BELL_FD, WORLD_SIZE, DECIDED = "ESPER_LINK_BELL_FD", "ESPER_LINK_WORLD_SIZE", "ESPER_LINK_DECIDED"
_BUFFER_BYTES = 1 << 20
_MUCH_BYTES = 1 << 10
"""Behind so much there may be more that the socket had no room for, and no ring tells when it has: of the smallest
messages 278 fill it, which is 3 KB."""


class Link:
    """Two socket pairs and the process at their other end. Never raises on a lost peer: `alive` says so.

    One lane carries votes, receipts, heartbeats and decisions; the other carries measurements, so that a burst of
    them never delays a vote. The process is exec'd, never forked; forked DataLoader workers close the descriptors.

    `doorbell[0]` is 0 where a look at the control lane would find only that rows are stored, or nobody at the end.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._launcher = launcher_of(self._environment, os.getppid())
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._rows: socket.socket | None = None
        self._unsent = b""
        self._left: list[pb.ToTrainer] = []
        self._doorbell = new_doorbell()
        self.doorbell = mapped(self._doorbell.fileno())
        finalize(self, self._doorbell.close)
        self.alive = False
        self.decided = ""
        self.num_starts = 0
        _of_this_process().add(self)

    @property
    def pid(self) -> int | None:
        """Process id of the runtime, for tests and operators."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the runtime process on two fresh socket pairs."""
        self._left += self._rest()
        self._close_sockets()
        self._reap()
        self._control, control_peer = socket.socketpair()
        self._rows, rows_peer = socket.socketpair()
        for end in (self._control, self._rows):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        inherited = (control_peer.fileno(), rows_peer.fileno(), self._doorbell.fileno())
        lanes = dict(zip((CONTROL_FD, ROWS_FD, BELL_FD), map(str, inherited), strict=True))
        fresh = {FRESH: "1"} if self.num_starts == 0 else {FRESH: "0", DECIDED: self.decided}
        family = {TRAINER_PID: str(os.getpid()), LAUNCHER_PID: str(self._launcher)}
        ring = await_alarm()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "esper.workers.runtime"],  # -P: whatever is named esper where the user stands
            env={**self._environment, **lanes, **fresh, **family, ALARM_FD: str(ring)},
            pass_fds=(*inherited, ring),
            stdin=subprocess.DEVNULL,
        )
        control_peer.close()
        rows_peer.close()
        os.close(ring)
        self._decoder = FrameDecoder(pb.ToTrainer)
        self._arrival = select.poll()
        self._arrival.register(self._control, select.POLLIN)
        self._unsent, self.alive = b"", True
        self.num_starts += 1

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        """Messages that have come, waiting up to `timeout_s` for the first."""
        if self._left:
            left, self._left = self._left, []
            return left
        if self._control is None or not self.alive:
            if timeout_s:
                time.sleep(timeout_s)  # a held step waits for the respawn; nothing else wakes it
            return []
        self.doorbell[0] = 0  # before the look: what is sent after it rings again
        if not self._arrival.poll(timeout_s * 1e3):  # a third of what it takes to be told by an exception
            return []
        return self._receive(self._control)

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        """Send on the control lane; waits for room up to `timeout_s`, then counts the runtime as lost."""
        view = memoryview(encode(message))
        deadline = time.monotonic() + timeout_s
        while view and self.alive and self._control is not None:
            try:
                view = view[self._control.send(view) :]
            except BlockingIOError:
                room = select.poll()  # select() knows no descriptor above 1,023, and a loader may hold as many
                room.register(self._control, select.POLLOUT)
                self.alive = bool(room.poll(max(0.0, deadline - time.monotonic()) * 1e3))
            except OSError:
                self.alive = False

    def rows_lane_free(self) -> bool:
        """True once everything given to `send_rows` has left; never waits."""
        self._push_rows()
        return self.alive and not self._unsent

    def send_rows(self, message: pb.ToRuntime) -> None:
        """Hand over a table of rows; call only where `rows_lane_free`."""
        self._unsent = encode(message)
        self._push_rows()

    def close(self, timeout_s: float = 5.0) -> None:
        """Hang up and wait for the runtime to end; kill it where it doesn't."""
        self._close_sockets()
        self._reap(timeout_s)

    def _rest(self) -> list[pb.ToTrainer]:
        """What a runtime that is lost has said last, and may have settled: an abort is told once."""
        found = list[pb.ToTrainer]()
        while self._control is not None and (read := self._receive(self._control)):
            found += read
        return found

    def _receive(self, control: socket.socket) -> list[pb.ToTrainer]:
        try:
            data = control.recv(_BUFFER_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.alive = False
            return []
        if len(data) >= _MUCH_BYTES:  # and else it stays as it is: it may have rung again by now
            self.doorbell[0] = 1
        return self._decoder.feed(data)

    def _push_rows(self) -> None:
        while self._unsent and self.alive and self._rows is not None:
            try:
                self._unsent = self._unsent[self._rows.send(self._unsent) :]
            except BlockingIOError:
                return
            except OSError:
                self.alive = False

    def _close_sockets(self) -> None:
        for end in (self._control, self._rows):
            if end is not None:
                end.close()
        self._control = self._rows = None
        self.alive = False

    def _reap(self, timeout_s: float = 0.0) -> None:
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None


@cache
def _of_this_process() -> WeakSet[Link]:
    """Those that a forked child closes. One set for all: what is registered is never let go of."""
    links = WeakSet[Link]()
    os.register_at_fork(after_in_child=partial(_close_in_child, links))
    return links


def _close_in_child(links: WeakSet[Link]) -> None:
    for link in links:
        link._close_sockets()


def await_ready(link: Link, timeout_s: float) -> str:
    """Wait for the runtime's first word and return the run id. Raises RuntimeLostError with its own sentence."""
    deadline = time.monotonic() + timeout_s
    while link.alive and (left := deadline - time.monotonic()) > 0:
        for message in link.poll(left):
            match message.WhichOneof("message"):
                case "ready":
                    link.decided = message.ready.decided
                    return message.ready.run_id
                case "failed":
                    raise RuntimeLostError(message.failed.sentence)
    if not link.alive:
        raise RuntimeLostError("the runtime beside the trainer ended before it was ready; its log says why")
    late = f"the runtime beside the trainer was not ready within {timeout_s:g} s, for which its log may give a reason"
    raise RuntimeLostError(
        f"{late}; on a machine with much else to do, let it take longer: ESPER_READY_S, or attach(ready_s=...)"
    )
