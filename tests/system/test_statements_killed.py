"""States of epochs and reports of seeds are on record once each, whenever the runtime beside the trainer is killed."""

from __future__ import annotations

import os
import signal
import time

from esper.leyline import contracts as pb
from tests.system.loop import Scripted
from tests.system.scripted import Script, germinate, propose


def carried_out(script: Script, loop: Scripted, round_: int, command: pb.AdaptationCommand) -> None:
    """Decide it as a coordinator would, and train until it took effect."""
    entry = script.publish("commands", command)
    propose(script, round_)
    boundary = loop.run.exchange.boundary
    loop.steps_until(lambda: boundary.promised_from is not None)
    assert boundary.promised_from is not None
    script.commit(round_, boundary.promised_from + 8, ("commands", entry))
    loop.steps_until(lambda: boundary.round_applied == round_)


def cull() -> pb.AdaptationCommand:
    command = germinate()
    command.command_id = "cull-s0"
    command.seed_command.CopyFrom(pb.SeedCommand(seed_id="s0", operation=pb.SeedOperation.SEED_OP_CULL))
    return command


def end_epochs(loop: Scripted, num: int) -> None:
    for _ in range(num):
        loop.step()
        loop.run.epoch_end()
    loop.step()


def kill(loop: Scripted, number: signal.Signals) -> None:
    pid = loop.run.exchange.link.pid  # type: ignore[union-attr]
    assert pid is not None
    os.kill(pid, number)


def test_each_epoch_and_each_seed_that_ended_is_told_once(script: Script, loop: Scripted) -> None:
    loop.step()
    carried_out(script, loop, 1, germinate())
    end_epochs(loop, 3)
    kill(loop, signal.SIGSTOP)  # what follows is said to it, and it never hears of it
    end_epochs(loop, 3)
    kill(loop, signal.SIGKILL)
    statements = loop.run.exchange.statements
    assert statements is not None
    loop.steps_until(lambda: statements.num_waiting == 0)
    carried_out(script, loop, 2, cull())
    kill(loop, signal.SIGKILL)  # with the report on its way, stored or not
    end_epochs(loop, 2)
    loop.run.close()

    told = [opened.message for opened in script.read("state")]
    states = [each for each in told if isinstance(each, pb.SystemStatePacket)]
    [report] = [each for each in told if isinstance(each, pb.FieldReport)]
    assert [each.current_epoch for each in states] == list(range(1, 9))
    assert (report.seed_id, report.outcome) == ("s0", pb.FieldReportOutcome.FIELD_REPORT_ABORTED)
    assert [record.stage for record in states[0].seed_states] == [pb.SeedLifecycleStage.SEED_STAGE_GERMINATED]


def test_what_comes_after_the_last_step_is_told_once_though_its_runtime_is_killed(
    script: Script, loop: Scripted
) -> None:
    for _ in range(3):
        loop.step()
    loop.run.exchange.store_rows(loop.run.step_number - 1)
    kill(loop, signal.SIGSTOP)  # it takes what it is told, and stores nothing
    names = [f"late {number}" for number in range(100)]
    for name in names:
        loop.run.status.rows.note(pb.TelemetryLevel.TELEMETRY_WARNING, name)
    loop.run.exchange.rows.tell_rest(loop.run.step_number - 1, time.time_ns())
    loop.run.exchange.flush_when_due(0.0, force=True)
    kill(loop, signal.SIGKILL)
    report = loop.run.close()

    frames = [opened.message for opened in script.read_region("r0", "telemetry")]
    packets = [packet for frame in frames if isinstance(frame, pb.TelemetryFrame) for packet in frame.packets]
    assert [event.description for packet in packets for event in packet.events] == names
    assert [packet.sequence for packet in packets][-4:] == [4, 5, 6, 7]
    assert (report.packets, report.shed) == (7, 0)
