"""A TCP port for processes that meet on this machine."""

from __future__ import annotations

import os
import socket
from itertools import count

FIRST, NUM = 11_000, 10_000
"""Below those that a kernel gives to whoever names none (Linux from 32,768 on): between the choice and its use, which
are seconds apart where torch is loaded meanwhile, nobody gets it by chance."""
APART = 97  # numbers between the first choices of two processes that were started one after the other
CONTAINERS_APART = 1_009
"""The same for two containers: they may share a network, and what each begins with has the number 1."""

_choices = count()


def free_port() -> int:
    """One that nobody listens on now, and that neither this process nor one beside it chooses as well."""
    first = APART * os.getpid() + CONTAINERS_APART * _container()
    for _ in range(NUM):
        port = FIRST + (first + next(_choices)) % NUM
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"no TCP port from {FIRST} to {FIRST + NUM - 1} is free")


def _container() -> int:
    """Who numbers the processes here: Linux's own number of that."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
