"""Has a nursery fork what this interpreter was started for, and stands in for it; on the path of a command's processes.

Python imports a module of this name before anything else. Whoever started the process sees its id, its output, that it
is ready and how it ends as ever; signals are passed on, and where this one is killed the nursery kills the other.
"""

from __future__ import annotations

import os
import signal
import sys

TOLD = "HANDED_OVER"
"""In the environment: a file of lines `module socket`, each that of a nursery which has imported what it needs."""
NOTIFY = "NOTIFY_SOCKET"
STARTS = (["-P", "-m"], ["-u", "-m"])  # as `esper up` and torchrun have them
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def stand_in(place: str, module: str, words: list[str]) -> None:
    """Does not return: ends as the other one ends."""
    from contextlib import suppress
    from pathlib import Path

    from tests.faults.nursery import Born

    held = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until there is somebody to pass them on to
    told = {**os.environ, **heard_for(os.environ.get(NOTIFY, ""))}
    order = {"module": module, "words": words, "environment": told, "folder": os.getcwd()}
    born = Born(Path(place), order, [0, 1, 2])

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(born.pid, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    try:
        code = born.wait()
    except (AssertionError, OSError):  # the nursery is gone, and the other with it; raised, this would go on here
        code = -signal.SIGKILL
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def heard_for(place: str) -> dict[str, str]:
    """Where the other one is to say that it is ready. Who waits for that at `place` knows this process alone."""
    if not place:
        return {}
    import socket
    from contextlib import suppress
    from threading import Thread

    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind("")  # the kernel names it

    def relay() -> None:
        while True:
            with suppress(OSError):  # nobody waits any more
                heard.sendto(heard.recv(4096), place)

    Thread(target=relay, daemon=True).start()
    return {NOTIFY: "@" + heard.getsockname()[1:].decode()}


def socket_of(module: str) -> str | None:
    """None: nobody forks it."""
    with open(os.environ[TOLD]) as file:
        return dict(line.split() for line in file).get(module)


if TOLD in os.environ and sys.orig_argv[1:3] in STARTS and (place := socket_of(sys.orig_argv[3])) is not None:
    stand_in(place, sys.orig_argv[3], sys.orig_argv[4:])
