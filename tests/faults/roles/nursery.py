"""Forks roles off a process that has imported all they need: a second of work each, done once."""

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from esper.runtime.gc_policy import end_soon, loading

PR_SET_PDEATHSIG = 1


def main() -> None:
    told = json.loads(sys.argv[1])
    with loading():
        preload(told["modules"])
    gc.freeze()  # a walk would have each child copy what it shares
    end_soon()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(told["socket"] + ".new")
        listener.listen(64)
        os.rename(told["socket"] + ".new", told["socket"])  # who finds it there is heard
        attend(listener)


def preload(modules: Sequence[str]) -> None:
    """Import what they import. They themselves run as `__main__` later, and must not be there already."""
    for module in modules:
        import_module(module)
        del sys.modules[module]


def attend(listener: socket.socket) -> None:
    """One child for each connection; when it ends, its exit status is the connection's last line.

    It is killed where whoever asked for it hangs up before that, or dies: nobody else would end it in a session's time.
    """
    events, born, asked = select.epoll(), dict[int, Birth](), dict[int, Birth]()
    events.register(listener, select.EPOLLIN)
    while True:
        for descriptor, _ in events.poll():
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
                pid = os.fork()
                if pid == 0:
                    events.close()
                    listener.close()
                    be_born(connection, [*born])
                    return
                birth = Birth(pid, os.pidfd_open(pid), connection)
                born[birth.pidfd] = asked[connection.fileno()] = birth
                events.register(birth.pidfd, select.EPOLLIN)
                events.register(connection, select.EPOLLRDHUP)
            elif descriptor in born:
                birth = born.pop(descriptor)
                if asked.pop(birth.connection.fileno(), None) is not None:
                    events.unregister(birth.connection)
                events.unregister(descriptor)
                os.close(descriptor)
                bury(birth)
            elif descriptor in asked and hung_up(asked[descriptor].connection):  # and not one that was here before
                events.unregister(descriptor)
                orphaned(asked.pop(descriptor).pid)


class Birth(NamedTuple):
    """A child, how its end is heard of, and who asked for it."""

    pid: int
    pidfd: int
    connection: socket.socket


def hung_up(connection: socket.socket) -> bool:
    """What the child has yet to read stays there."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def orphaned(pid: int) -> None:
    """Its group, or itself where it leads none yet; it is there, as nobody has buried it."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)


def bury(birth: Birth) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(birth.pid, 0)[1])
    with birth.connection as connection:
        try:
            connection.sendall(f"{code}\n".encode())
        except OSError:
            return  # nobody asks any more


def be_born(connection: socket.socket, inherited: Sequence[int]) -> None:
    """Leader of a session of its own, dead as soon as the parent is; then the role."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for pidfd in inherited:
        os.close(pidfd)
    order, streams = heard(connection)
    dress(order, streams)
    connection.sendall(f"{os.getpid()}\n".encode())
    connection.close()
    carry_out(order)


def heard(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """An order, and the descriptors that came with it: standard input, output and error, or none."""
    line, streams, *_ = socket.recv_fds(connection, 1 << 16, 3)
    while not line.endswith(b"\n"):
        line += connection.recv(1 << 16)
    return json.loads(line), streams


def dress(order: dict[str, Any], streams: Sequence[int]) -> None:
    """Streams, folder and environment of its own."""
    if streams:
        for descriptor, stream in enumerate(streams):
            os.dup2(stream, descriptor)
            os.close(stream)
    else:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
    os.environ.update(order["environment"])
    os.chdir(order.get("folder", "."))
    if streams:  # the nursery's own was opened as a file, and would be asked where in it it stands
        raw = io.FileIO(1, "wb", closefd=False)
        is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
        below: Any = raw if is_unbuffered else io.BufferedWriter(raw)
        sys.stdout = sys.__stdout__ = io.TextIOWrapper(below, "utf-8", write_through=is_unbuffered)  # type: ignore[misc]


def carry_out(order: dict[str, Any]) -> None:
    """A module as `python -m` has it, or a text as `python -c`."""
    words = order["words"] if "words" in order else [json.dumps(order["arguments"])]
    if "text" in order:
        sys.argv = ["-c", *words]
        sys.orig_argv = [sys.executable, "-c", order["text"], *words]  # a run's record has it, to be started again by
        exec(compile(order["text"], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [order["module"], *words]
        sys.orig_argv = [sys.executable, "-m", *sys.argv]
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
