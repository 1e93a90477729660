"""A runtime beats for a trainer that is away from its boundary, not for one that stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from esper.leyline import contracts as pb
from esper.runtime.beside.alarm import EVICTED
from esper.runtime.beside.heartbeat_repeater import HeartbeatRepeater, is_stopped
from tests.clocks import Clock
from tests.rounds import heartbeat

LISTENS = """
import os, sys, time
from esper.runtime.beside.alarm import await_alarm
ring = await_alarm()
child = os.fork()
if child == 0:
    if len(sys.argv) > 1:
        os.write(ring, b"round 4: the process group ends")
    os._exit(0)
os.close(ring)
os.waitpid(child, 0)
sys.stdin.buffer.raw.read(1)
"""
LISTENING = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", LISTENS]  # 3.12's, of a fork beside a thread


@pytest.fixture
def asleep() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def test_a_trainer_in_a_long_step_is_beaten_for_until_it_counts_as_hung() -> None:
    clock = Clock(100.0)
    repeater = HeartbeatRepeater(step_timeout_s=60.0, pid=os.getpid(), clock=clock)
    due = heartbeat(0, 7, due=True)
    due.pruning.SetInParent()

    before_it_spoke = repeater.again()
    repeater.heard(due)
    at = {}
    for later_s in (0.4, 0.5, 59.9, 60.0):
        clock.now_s = 100.0 + later_s
        at[later_s] = repeater.again()

    assert before_it_spoke is at[0.4] is at[60.0] is None
    again = at[59.9]
    assert again is not None and at[0.5] is not None
    assert (again.worker, again.step, again.barrier_due, again.repeated) == ("worker-0", 7, False, True)
    assert not again.HasField("pruning")
    assert due.barrier_due  # what it said itself stays as it was


def test_for_one_that_was_stopped_nobody_speaks_until_it_goes_on(asleep: int) -> None:
    clock = Clock(100.0)
    repeater = HeartbeatRepeater(pid=asleep, clock=clock)
    repeater.heard(pb.Heartbeat(worker="w"))
    clock.now_s += 1.0

    said = [repeater.again() is not None]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        os.kill(asleep, number)
        os.waitid(os.P_PID, asleep, os.WSTOPPED | os.WCONTINUED)
        said.append(repeater.again() is not None)

    assert said == [True, False, True]


def test_a_process_that_has_ended_does_not_live() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()

    assert is_stopped(process.pid)


def listens(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*LISTENING, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, input="x")


def test_an_alarm_ends_a_process_with_a_status_of_its_own_and_says_why() -> None:
    command = [*LISTENING, "rings"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert (process.wait(120), process.stderr.read()) == (EVICTED, "round 4: the process group ends\n")


def test_where_nobody_rings_a_process_goes_on_to_its_own_end() -> None:
    ended = listens()

    assert (ended.returncode, ended.stderr) == (0, "")
