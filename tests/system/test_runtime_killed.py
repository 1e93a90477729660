"""The runtime beside a trainer, stopped and killed at the worst moments."""

from __future__ import annotations

import os
import signal

import pytest

from esper.leyline import contracts as pb
from tests.system.loop import Scripted
from tests.system.scripted import Script, germinate, propose, receipts
from tests.system.town import Town, rate

APPLIED = pb.ReceiptStatus.RECEIPT_APPLIED


def adjust(lr: float) -> pb.AdaptationCommand:
    return pb.AdaptationCommand(
        version=1,
        command_id=f"lr-{lr}",
        command_type=pb.CommandType.COMMAND_OPTIMIZER,
        priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
        optimizer_adjustment=pb.OptimizerAdjustment(optimizer_id="host", hyperparameters={"lr": lr}),
    )


def ended(script: Script) -> list[pb.WorkerReport]:
    """What is on record of how a trainer ended."""
    records = [opened.message for opened in script.read("receipts")]
    return [each.ended.report for each in records if isinstance(each, pb.RunRecord) and each.HasField("ended")]


def farewells(script: Script) -> list[pb.WorkerReport]:
    beats = [opened.message for opened in script.read("heartbeats")]
    return [beat.report for beat in beats if isinstance(beat, pb.Heartbeat) and beat.HasField("report")]


def test_killed_between_effect_and_ack_it_applies_the_command_once(script: Script, loop: Scripted) -> None:
    loop.step()
    entry = script.publish("commands", germinate())
    propose(script, 1)
    loop.steps_until(lambda: loop.run.exchange.boundary.promised_from is not None)
    effective = loop.run.exchange.boundary.promised_from + 8  # type: ignore[operator]
    script.commit(1, effective, ("commands", entry))
    loop.hear_until(lambda: bool(loop.run.exchange.boundary.queued))
    victim = loop.run.exchange.link.pid  # type: ignore[union-attr]
    assert victim is not None
    os.kill(victim, signal.SIGSTOP)  # it has handed the commit over, and will never hear of the effect

    loop.steps_until(lambda: loop.run.exchange.boundary.round_applied == 1, limit=9)
    assert receipts(script) == []
    assert script.pending("commands", "worker-0") == 1
    os.kill(victim, signal.SIGKILL)
    loop.steps_until(lambda: len(receipts(script)) > 0)

    assert [(receipt.command_id, receipt.status) for receipt in receipts(script)] == [("germinate-s0", APPLIED)]
    assert loop.run.exchange.link.num_starts == 2  # type: ignore[union-attr]
    assert [record.stage for report in loop.run.executor.reports() for record in report.history] == [
        pb.SeedLifecycleStage.SEED_STAGE_GERMINATED
    ]
    assert script.pending("commands", "worker-0") == 0
    assert script.pending("decisions", "worker-0") == 0


def test_no_row_is_lost_or_doubled_when_it_is_killed(script: Script, loop: Scripted, run_id: str) -> None:
    for _ in range(100):
        loop.step()
    os.kill(loop.run.exchange.link.pid, signal.SIGKILL)  # type: ignore[union-attr]
    for _ in range(100):
        loop.step()

    report = loop.run.close()

    frames = [opened.message for opened in script.read_region("r0", "telemetry")]
    numbers = {packet.sequence for frame in frames for packet in frame.packets}  # type: ignore[attr-defined]
    assert numbers == set(range(1, 201))
    assert (report.packets, report.shed) == (200, 0)


def test_every_packet_is_counted_once_by_both_tiers_when_it_is_killed(town: Town) -> None:
    town.publish(rate(0.05))
    town.steps_until(lambda: town.run.optimizers.hyperparameters()["lr"] == 0.05)
    os.kill(town.run.exchange.link.pid, signal.SIGKILL)  # type: ignore[union-attr]
    town.publish(rate(0.025))
    town.steps_until(lambda: town.run.optimizers.hyperparameters()["lr"] == 0.025)

    report = town.run.close()

    town.await_counted(report.packets - report.shed)
    assert town.num_counted == report.packets - report.shed > 0
    assert town.run.exchange.link.num_starts == 2  # type: ignore[union-attr]


def test_last_words_are_stored_though_it_was_dead_already_when_the_run_ended(script: Script, loop: Scripted) -> None:
    for _ in range(40):
        loop.step()
    loop.run.exchange.store_rows(loop.run.step_number - 1)
    link = loop.run.exchange.link
    os.kill(link.pid, signal.SIGKILL)  # type: ignore[union-attr]
    while link.alive:  # type: ignore[union-attr]
        link.poll(1.0)  # type: ignore[union-attr]

    report = loop.run.close()

    assert ended(script) == farewells(script) == [report]


def test_killed_between_its_trainers_last_words_it_is_told_both_again(
    script: Script, loop: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(40):
        loop.step()
    link, say = loop.run.exchange.link, loop.run.exchange.say

    def said(message: pb.ToRuntime) -> None:
        say(message)
        if message.HasField("record") and link.num_starts == 1:  # type: ignore[union-attr]
            while not ended(script):
                link.poll(0.05)  # type: ignore[union-attr]
            os.kill(link.pid, signal.SIGKILL)  # type: ignore[union-attr]

    monkeypatch.setattr(loop.run.exchange, "say", said)
    report = loop.run.close()

    assert (ended(script), farewells(script)) == ([report] * 2, [report])
    assert link.num_starts == 2  # type: ignore[union-attr]


def test_a_ctrl_c_that_reaches_both_leaves_it_its_trainers_last_words(script: Script, loop: Scripted) -> None:
    for _ in range(40):
        loop.step()
    link = loop.run.exchange.link
    os.kill(link.pid, signal.SIGINT)  # type: ignore[union-attr]

    with pytest.raises(KeyboardInterrupt), loop.run:
        raise KeyboardInterrupt

    assert ended(script) == [loop.run.close()]
    assert link.num_starts == 1  # type: ignore[union-attr]


def test_a_pause_holds_the_step_and_a_resume_frees_it(script: Script, loop: Scripted) -> None:
    pause = pb.AdaptationCommand(
        version=1,
        command_id="pause",
        command_type=pb.CommandType.COMMAND_PAUSE,
        priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
        pause_command=pb.PauseCommand(),
    )
    loop.step()
    entry = script.publish("commands", pause)
    propose(script, 1)
    loop.steps_until(lambda: loop.run.exchange.boundary.promised_from is not None)
    held_before = loop.run.exchange.boundary.promised_from + 8  # type: ignore[operator]
    script.commit(1, held_before, ("commands", entry))
    resume = pb.AdaptationCommand()
    resume.CopyFrom(pause)
    resume.command_id, resume.pause_command.resume = "resume", True
    script.commit(2, held_before, ("commands", script.publish("commands", resume)))

    loop.steps_until(lambda: loop.run.step_number > held_before)

    assert [(receipt.command_id, receipt.step) for receipt in receipts(script)][:1] in ([], [("pause", held_before)])
    loop.steps_until(lambda: len(receipts(script)) == 2)
    assert [receipt.step for receipt in receipts(script)] == [held_before, held_before]


def test_the_adjusted_rate_wins_from_its_step_on(script: Script, loop: Scripted) -> None:
    loop.step()
    entry = script.publish("commands", adjust(0.025))
    propose(script, 1)
    loop.steps_until(lambda: loop.run.exchange.boundary.promised_from is not None)
    effective = loop.run.exchange.boundary.promised_from + 8  # type: ignore[operator]
    script.commit(1, effective, ("commands", entry))

    rates = {}
    for _ in range(20):
        number = loop.run.step_number
        rates[number] = loop.step_and_measure()

    assert rates[effective - 1] == pytest.approx(0.1, rel=1e-4)
    assert rates[effective] == pytest.approx(0.025, rel=1e-4)
