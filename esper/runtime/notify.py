"""How a process says how far it is: systemd's protocol, one datagram to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

SOCKET = "NOTIFY_SOCKET"
READY = "READY=1"
TRAINED = "X_ESPER_TRAINED=1"
"""A trainer has trained a step; others than `esper up` make nothing of it."""
LONGEST_BYTES = 4096
ROOM_S = 5.0
"""Waited for room at most: what says something is at its start, or at the end of its first step."""
CREDENTIALS = struct.Struct("iII")  # pid, uid, gid, as the kernel puts them down for the sender

log = structlog.get_logger()


def tell(state: str) -> None:
    """Say this to whoever started this process, where it listens. That nobody listens is no fault of ours.

    Few datagrams wait for one who listens (net.unix.max_dgram_qlen, 10 where nobody says more): where many processes
    speak at once, as after the first step of a run, room for one more is waited for.
    """
    path = os.environ.get(SOCKET, "")
    if not path:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.settimeout(ROOM_S)
            channel.connect("\0" + path[1:] if path.startswith("@") else path)  # or who waits for room would spin
            channel.send(state.encode())
    except OSError as error:
        log.debug("notice.unheard", path=path, why=str(error))


def ready() -> None:
    """Say that this process does its work from now on."""
    tell(READY)


class Notices:
    """The other end of it: hands on the process that has said something. The kernel vouches for who sends."""

    def __init__(self, path: Path, hears: Mapping[str, Callable[[int], None]]) -> None:
        self.path, self._hears = path, hears
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)

    def __enter__(self) -> Notices:
        self._channel.bind(str(self.path))
        self.path.chmod(0o600)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        asyncio.get_running_loop().add_reader(self._channel.fileno(), self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._channel.fileno())
        self._channel.close()
        self.path.unlink(missing_ok=True)

    def _hear(self) -> None:
        while True:
            try:
                said, extra, _, _ = self._channel.recvmsg(LONGEST_BYTES, socket.CMSG_SPACE(CREDENTIALS.size))
            except BlockingIOError:
                return
            senders = [
                CREDENTIALS.unpack(content)[0]
                for level, kind, content in extra
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
            ]
            for state in said.decode(errors="replace").splitlines() if senders else ():
                if state in self._hears:
                    self._hears[state](senders[0])
