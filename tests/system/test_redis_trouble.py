"""Redis killed, read-only, out of memory or of disk in mid-run: training goes on, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from esper.bus import names
from esper.bus.embedded import asked
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import unpack
from esper.leyline.replay import ReplayGuard
from esper.runtime.beside.loop import windows_key
from esper.runtime.coordinator.lease import LEASE_S
from esper.runtime.serving.windows import part
from tests.bus_kit import fill_disk, free_disk
from tests.faults.processes import wait_until
from tests.system.processes import PATIENCE_S
from tests.system.town import REGION, WORKER, Town, rate, rate_is

Change = Callable[[Town], None]
NUM_UNSTORED = 64


def kill(town: Town) -> None:
    town.server.kill()


def start(town: Town) -> None:
    town.server.start()


def make_replica(town: Town) -> None:
    town.order("REPLICAOF", "127.0.0.1", "1")


def make_primary(town: Town) -> None:
    town.order("REPLICAOF", "NO", "ONE")


def take_memory(town: Town) -> None:
    town.order("CONFIG", "SET", "maxmemory", "1")


def give_memory(town: Town) -> None:
    town.order("CONFIG", "SET", "maxmemory", "0")


def fill(town: Town) -> None:
    town.order("CONFIG", "SET", "appendfsync", "everysec")  # one that is to sync each write ends itself
    fill_disk(town.server)


def free(town: Town) -> None:
    free_disk(town.server)


def hold_up(town: Town) -> None:
    town.order("CONFIG", "SET", "lua-time-limit", "1")
    with socket.socket(socket.AF_UNIX) as somebody:  # who does not wait for it to end
        somebody.connect(str(town.server.socket))
        somebody.sendall(b"EVAL 'while true do end' 0\r\n")


def let_go(town: Town) -> None:
    asked(town.server.socket, b"SCRIPT KILL")


TROUBLES = {
    "cannot be reached": (kill, start),
    "is read-only": (make_replica, make_primary),
    "is out of memory": (take_memory, give_memory),
    "cannot write to its disk": (fill, free),
    "is held up by somebody's script": (hold_up, let_go),
}


@pytest.mark.parametrize("said", TROUBLES)
def test_training_goes_on_through_it_and_the_run_catches_up(town: Town, said: str) -> None:
    harm, mend = TROUBLES[said]
    town.publish(rate(0.05))
    town.steps_until(rate_is(town, 0.05))
    town.settle_down()

    harm(town)
    enough = town.run.step_number + NUM_UNSTORED
    town.steps_until(lambda: town.run.step_number >= enough and town.run.exchange.rows.unstored >= NUM_UNSTORED)
    mend(town)
    town.publish(rate(0.025))
    town.steps_until(rate_is(town, 0.025))
    town.steps_until(lambda: "bus.regained" in town.log("runtime"))  # each part tries again in its own time
    report = town.run.close()
    stored = sorted({packet.sequence for frame in town.said("telemetry", REGION) for packet in frame.packets})
    town.await_counted(report.packets - report.shed)

    runtime = town.log("runtime")
    assert (runtime.count("bus.lost"), runtime.count("bus.regained")) == (1, 1), runtime
    assert said in runtime
    assert "Traceback" not in runtime
    assert [process.poll() for process in town.servers.values()] == [None, None, None]
    assert stored == list(range(stored[0], report.packets - report.shed + 1))  # the first may be settled, and gone
    assert town.num_counted == report.packets - report.shed
    assert (report.commands_applied, report.commands_failed) == (2, 0)


def test_a_command_that_redis_acknowledged_before_it_was_killed_is_carried_out_once(coordinated: Town) -> None:
    town = coordinated
    town.publish(rate(0.05))
    town.steps_until(rate_is(town, 0.05))
    town.settle_down()
    town.servers["coordinator"].send_signal(signal.SIGSTOP)

    town.publish(rate(0.025))
    town.server.kill()
    town.servers["coordinator"].send_signal(signal.SIGCONT)
    town.steps_until(lambda: town.run.exchange.rows.unstored >= NUM_UNSTORED)
    town.server.start()
    town.steps_until(rate_is(town, 0.025))
    report = town.run.close()

    receipts = [(each.command_id, each.worker) for each in town.said("receipts") if isinstance(each, pb.CommandReceipt)]
    assert sorted(receipts) == sorted(
        (f"lr-{value}", worker) for value in (0.05, 0.025) for worker in ("coordinator", "worker-0")
    )
    assert (report.commands_applied, report.commands_failed) == (2, 0)
    assert "history.lost" not in town.log("coordinator")


RESUMED_S = 25.0
"""A coordinator's start took 8 of them at a load of ten on two cores; a trainer that hears nothing gives up at 30."""


def applied_within(town: Town, value: float) -> float:
    """Publish a command and train on until it has taken effect; seconds."""
    began = time.monotonic()
    town.publish(rate(value))
    town.steps_until(rate_is(town, value))
    return time.monotonic() - began


def test_commands_published_after_all_history_is_lost_are_applied_in_time(town: Town) -> None:
    for value in (0.05, 0.04):
        applied_within(town, value)
    town.settle_down()
    before = [sealed for _, sealed in town.sealed(names.key(town.run_id, "commands"))]

    town.order("FLUSHALL")
    same = applied_within(town, 0.03)
    wait_until(lambda: all(is_known(town, sealed) for sealed in before), "all are on record", PATIENCE_S)
    coordinator = town.servers["coordinator"]
    coordinator.kill()
    coordinator.wait()
    town.order("FLUSHALL")
    town.start_another("coordinator")
    anew = applied_within(town, 0.02)
    again = applied_within(town, 0.01)
    report = town.run.close()

    assert max(same, anew, again) <= RESUMED_S, (same, anew, again)
    assert (report.commands_applied, report.commands_failed) == (5, 0)
    assert {process.poll() for process in town.servers.values()} == {None}
    assert "Traceback" not in town.log("coordinator") + town.log("runtime")


def is_known(town: Town, sealed: bytes) -> bool:
    """Whether Redis holds that this worker has met it."""
    stored = town.order("HGETALL", windows_key(town.run_id, WORKER))
    guard, parts = ReplayGuard(), unpack(sealed)
    guard.load(part({field.decode(): value for field, value in stored.items()}, "commands"))
    try:
        guard.note(parts.header, "1-0", sealed[parts.seal_start :])
    except RefusedError:
        return True
    return False


def test_a_second_coordinator_stands_by_and_takes_over_from_one_that_is_stopped(coordinated: Town) -> None:
    town = coordinated
    town.steps_until(lambda: "coordinator.leads" in town.log("coordinator"))
    old = town.start_another("coordinator")
    town.steps_until(lambda: "coordinator.stands_by" in town.log("coordinator"))
    applied_within(town, 0.05)
    assert town.log("coordinator").count("coordinator.leads") == 1

    old.send_signal(signal.SIGSTOP)
    took_s = applied_within(town, 0.04)
    old.send_signal(signal.SIGCONT)
    town.steps_until(lambda: old.poll() is not None)
    applied_within(town, 0.03)

    log = town.log("coordinator")
    assert took_s <= LEASE_S + RESUMED_S
    assert log.count("coordinator.leads") == 2
    assert old.returncode == 1
    assert log.count("process.failed") == 1
    assert "another process has taken over" in log
    assert "Traceback" not in log and "ExceptionGroup" not in log


def test_a_coordinator_that_begins_while_the_disk_is_full_leads_once_there_is_room(coordinated: Town) -> None:
    town = coordinated
    applied_within(town, 0.05)
    town.settle_down()
    town.servers["coordinator"].kill()
    town.servers["coordinator"].wait()

    fill(town)
    enough = town.run.step_number + NUM_UNSTORED
    town.steps_until(lambda: town.run.step_number >= enough and town.run.exchange.rows.unstored >= NUM_UNSTORED)
    town.start_another("coordinator")
    begun = town.servers["coordinator"]
    town.steps_until(lambda: "coordinator.stands_by" in town.log("coordinator") or begun.poll() is not None)
    free(town)

    assert begun.poll() is None, town.log("coordinator")
    applied_within(town, 0.04)
    assert {process.poll() for process in town.servers.values()} == {None}


@pytest.mark.parametrize("survives", [True, False], ids=["the same coordinator", "a new coordinator"])
def test_a_command_whose_commit_redis_has_forgotten_is_not_carried_out_again(coordinated: Town, survives: bool) -> None:
    town = coordinated
    applied_within(town, 0.05)
    town.settle_down()
    coordinator = town.servers["coordinator"]
    coordinator.send_signal(signal.SIGSTOP)
    town.publish(rate(0.04))
    before_its_commit = aof(town).stat().st_size
    coordinator.send_signal(signal.SIGCONT)
    town.steps_until(rate_is(town, 0.04))
    town.steps_until(lambda: ("lr-0.04", "worker-0") in receipts(town))

    if not survives:
        coordinator.kill()
        coordinator.wait()
    cut_back(town, before_its_commit)
    forgotten = receipts(town)
    if not survives:
        town.start_another("coordinator")
    applied_within(town, 0.03)
    report = town.run.close()

    assert ("lr-0.04", "worker-0") not in forgotten
    assert (report.commands_applied, report.commands_failed) == (3, 0)
    assert max(Counter(receipts(town)).values()) == 1
    assert {process.poll() for process in town.servers.values()} == {None}
    assert "windows.fell_back" in town.log("coordinator" if survives else "runtime")
    assert "Traceback" not in town.log("coordinator") + town.log("runtime")


def aof(town: Town) -> Path:
    """The append-only file that is written now, of a server of 6.2 or of 7.0."""
    directory = town.server.directory
    return next(iter((*directory.glob("appendonlydir/*.incr.aof"), directory / "appendonly.aof")))


def cut_back(town: Town, size: int) -> None:
    """Let the server crash, with all that it wrote after this many bytes."""
    town.server.kill()
    assert aof(town).stat().st_size > size
    os.truncate(aof(town), size)
    town.server.start()


def receipts(town: Town) -> list[tuple[str, str]]:
    return [(each.command_id, each.worker) for each in town.said("receipts") if isinstance(each, pb.CommandReceipt)]
