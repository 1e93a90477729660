"""A rank that trains nothing, beside a real runtime: away from its boundary for long, and then for good."""

from __future__ import annotations

import os
import signal
import sys
import time

from esper.leyline import contracts as pb
from esper.runtime.beside.link import Link, await_ready

BEAT_S = 0.2


def main(rank: int, away_s: float) -> None:
    """It says when it is back. Then rank 1 stands still, and rank 0 waits for it, as a collective does."""
    link = Link(os.environ)
    link.start()
    await_ready(link, 200.0)
    heartbeat = pb.Heartbeat(
        version=1, worker=os.environ["ESPER_NAME"], incarnation=os.getpid(), rank=rank, world_size=2
    )
    link.send(pb.ToRuntime(heartbeat=heartbeat))
    link.send(pb.ToRuntime(begin=pb.Begin()))
    print("begins", flush=True)
    sys.stdin.read(1)  # until both have begun
    heartbeat.busy = pb.BusyWith.BUSY_COMPILE if rank else pb.BusyWith.BUSY_NONE
    link.send(pb.ToRuntime(heartbeat=heartbeat))
    time.sleep(away_s)
    heartbeat.busy = pb.BusyWith.BUSY_NONE
    link.send(pb.ToRuntime(heartbeat=heartbeat))
    time.sleep(BEAT_S)  # on its way
    print("is back" if link.alive else "has lost its runtime", flush=True)
    while rank:  # whoever stops and wakes all that the tests have started
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(200.0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
