"""How a trainer is ended that may be stuck in a step: its runtime rings, and a thread hears that does nothing else.

A rank that waits in a collective for one that hangs comes to no boundary, and python runs no signal handler before it
does; so what ends it is neither a message nor a signal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from esper.errors import EvictedError

EVICTED = 75
"""Exit status of a trainer whose process group ends, to be started anew: EX_TEMPFAIL of sysexits.h."""
ALARM_FD, TRAINER_PID, LAUNCHER_PID = "ESPER_LINK_ALARM_FD", "ESPER_LINK_TRAINER_PID", "ESPER_LINK_LAUNCHER_PID"
GRACE_S = 2.0
LOOK_S = 0.05


def await_alarm() -> int:
    """Have this process end with status 75 once somebody writes a sentence to the descriptor that this returns.

    The descriptor is for a child to inherit, and to be closed here after that; once nobody holds it, all is forgotten.
    """
    heard, ring = os.pipe()
    threading.Thread(target=_end_when_rung, args=(heard,), name="esper-alarm", daemon=True).start()
    return ring


def _end_when_rung(heard: int) -> None:
    said = b""
    while part := os.read(heard, 4_096):
        said += part
    os.close(heard)
    if said:
        with suppress(OSError):  # of a disk that is full, too
            os.write(2, said + b"\n")
        os._exit(EVICTED)  # what is in memory is given up: the group goes on from its newest common checkpoint


@asynccontextmanager
async def rung_if_evicted(descriptor: int, trainer: int, grace_s: float = GRACE_S) -> AsyncIterator[None]:
    """In the runtime: where an EvictedError ends the block, the trainer ends with its sentence.

    By force where it does not within `grace_s`: one that was stopped hears no alarm either. `trainer` is the process
    that has started this one: once that is gone, its parent is whoever adopts orphans, such as systemd.
    """
    try:
        yield
    except EvictedError as error:
        with suppress(BrokenPipeError):  # it has just ended by itself
            os.write(descriptor, str(error).encode())
        os.close(descriptor)
        give_up_at = time.monotonic() + grace_s
        while os.getppid() == trainer and time.monotonic() < give_up_at:
            await asyncio.sleep(LOOK_S)
        if os.getppid() == trainer:
            os.kill(trainer, signal.SIGKILL)
        raise
