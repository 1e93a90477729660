"""The pipe and the sockets between a trainer and its runtime, where one of them is gone, or has much open."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import subprocess
import sys

import pytest

from esper.errors import EvictedError
from esper.leyline import contracts as pb
from esper.runtime.beside.alarm import rung_if_evicted
from esper.runtime.beside.link import Link

ADOPTS = """
import asyncio, ctypes, os, sys, time
from esper.errors import EvictedError
from esper.runtime.beside.alarm import rung_if_evicted

async def evicted(ring, trainer):
    async with rung_if_evicted(ring, trainer, grace_s=0.0):
        raise EvictedError("round 4: the process group ends")

ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans become children of this one, as of systemd --user
heard, ring = os.pipe()
adopts, trainer = os.getpid(), os.fork()
if trainer == 0:
    trainer, runtime = os.getpid(), os.fork()
    if runtime == 0:
        while os.getppid() != adopts:
            time.sleep(0.001)
        try:
            asyncio.run(evicted(ring, trainer))
        except EvictedError:
            os._exit(0)
    os._exit(0)
os.waitpid(trainer, 0)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def test_a_runtime_whose_trainer_is_gone_kills_nobody_who_has_adopted_it() -> None:
    ended = subprocess.run([sys.executable, "-P", "-c", ADOPTS], capture_output=True, text=True, timeout=150)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")


async def test_a_trainer_that_has_just_died_is_no_error_of_its_runtime() -> None:
    heard, ring = os.pipe()
    os.close(heard)

    with pytest.raises(EvictedError, match="round 4"):
        async with rung_if_evicted(ring, os.getpid()):
            raise EvictedError("round 4: the process group ends")


def test_a_trainer_with_many_open_files_gives_up_a_runtime_that_does_not_read_as_any_other() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_048:
        pytest.skip("this machine lets nobody open so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
    near, far = socket.socketpair()
    link = Link({})
    with near, far, socket.socket(fileno=fcntl.fcntl(near.fileno(), fcntl.F_DUPFD_CLOEXEC, 1_500)) as control:
        control.setblocking(False)
        link._control, link.alive = control, True

        while link.alive:
            link.send(pb.ToRuntime(heartbeat=pb.Heartbeat(worker="x" * 65_536)), timeout_s=0.0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert not link.alive
