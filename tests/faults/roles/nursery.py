"""Forks roles off a process that has imported all they need: a second of work each, done once."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module

from esper.runtime.collecting import end_soon, loading

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
    """One child for each connection; when it ends, its exit status is the connection's last line."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                pid = os.fork()
                if pid == 0:
                    be_born(connection, [each.fd for each in selector.get_map().values()])
                    return
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
            else:
                selector.unregister(key.fileobj)
                os.close(key.fd)
                bury(*key.data)


def bury(pid: int, connection: socket.socket) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with connection:
        try:
            connection.sendall(f"{code}\n".encode())
        except OSError:
            return  # nobody asks any more


def be_born(connection: socket.socket, inherited: Sequence[int]) -> None:
    """Leader of a session of its own, dead as soon as the parent is; then the role."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for descriptor in inherited:
        os.close(descriptor)
    with connection.makefile("rb") as lines:
        order = json.loads(lines.readline())
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.environ.update(order["environment"])
    connection.sendall(f"{os.getpid()}\n".encode())
    connection.close()
    sys.argv = [order["module"], json.dumps(order["arguments"])]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
