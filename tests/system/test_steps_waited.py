"""A trainer beside its runtime waits for a decision before the step that it promised not to begin, and at no other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from esper.leyline import contracts as pb
from esper.leyline.validate.bounds import PROMISE_STEPS
from tests.faults.processes import wait_until
from tests.system.loop import Scripted
from tests.system.processes import PATIENCE_S
from tests.system.scripted import Script


def asked(script: Script, loop: Scripted, round_: int) -> int:
    """Propose a round and train until there is a vote; the step that it promises not to begin."""
    proposal = pb.BarrierProposal(version=1, round=round_, roster_generation=1, roster=["worker-0"], time_ns=1)
    script.publish("decisions", proposal)
    loop.steps_until(lambda: loop.run.exchange.boundary.promised_from is not None)
    voted_at = loop.run.exchange.boundary.promised_from
    assert voted_at is not None
    return voted_at + PROMISE_STEPS


def beats(script: Script, step: int) -> list[pb.Heartbeat]:
    """What the trainer itself has said before this step."""
    said = [opened.message for opened in script.read("heartbeats")]
    return [beat for beat in said if isinstance(beat, pb.Heartbeat) and beat.step == step and not beat.repeated]


def end_once_it_waits(script: Script, step: int, round_: int) -> None:
    """One heartbeat may be of the end of the step before; a second one is of who waits."""
    wait_until(lambda: len(beats(script, step)) > 1, "it waits", PATIENCE_S)
    script.publish("decisions", pb.BarrierAbort(version=1, round=round_, roster_generation=1))


def test_a_step_waits_only_where_the_promise_forbids_it_and_is_counted(script: Script, loop: Scripted) -> None:
    loop.step()
    held_before = asked(script, loop, 1)
    while loop.run.step_number < held_before:
        loop.step()  # nothing is decided yet
    within = loop.run.status.steps_waited

    with ThreadPoolExecutor() as pool:
        ended = pool.submit(end_once_it_waits, script, held_before, 1)
        loop.step()
        ended.result()
    outrun = loop.run.status.steps_waited

    held_before = asked(script, loop, 2)
    script.publish("decisions", pb.BarrierAbort(version=1, round=2, roster_generation=1))
    loop.hear_until(lambda: loop.run.exchange.boundary.promised_from is None)
    while loop.run.step_number <= held_before:
        loop.step()

    assert (within, outrun, loop.run.close().steps_waited) == (0, 1, 1)
    told = [opened.message for opened in script.read("heartbeats")]
    last = [beat.report for beat in told if isinstance(beat, pb.Heartbeat) and beat.HasField("report")]
    assert [report.steps_waited for report in last] == [1]
