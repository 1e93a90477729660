"""The report of a run whose processes began anew without a checkpoint is that of the model which they trained last."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Opened
from esper.web.finished import Finished, fold
from esper.web.report import html
from tests import log_kit
from tests.log_kit import Writer, began
from tests.sealed import MASTER, NOW_MS, RUN
from tests.view_kit import Stage, said, seed

FOSSILIZED = Stage.SEED_STAGE_FOSSILIZED


def state(at_ms: int, step: int, loss: float, *seeds: pb.SeedState) -> Opened:
    """What a rank says at the end of an epoch."""
    message = pb.SystemStatePacket(
        version=1, packet_id=f"p{at_ms}", global_step=step, training_loss=loss, seed_states=seeds
    )
    message.source_subsystem, message.training_run_id = "worker-0", RUN
    return said(Role.WORKER, "worker-0", message, at_ms)


def restarted(first_step: int, *seeds: pb.SeedState) -> Finished:
    """A run that begins again before this step, with these seeds, 60 s after its first begin."""
    writer = Writer(RUN, MASTER)
    writer.pass_ms(NOW_MS - log_kit.NOW_MS)
    for rank in range(2):
        writer.record(rank, began=began())
    writer.pass_ms(60_000)
    for rank in range(2):
        writer.record(rank, incarnation=8, began=began(first_step=first_step, resumed=first_step > 1))
    fossil = seed("s0", FOSSILIZED, alpha=1.0, stage_since_step=300)
    before = [state(10_000 * number, 100 * number, 1.0 / number, fossil) for number in range(3, 6)]
    behind = [state(70_000 + 10_000 * number, first_step + 50 * number, 2.0, *seeds) for number in range(1, 3)]
    return fold(writer.book, writer.keyring, [*before, *behind])


def test_losses_seeds_and_marks_are_those_of_the_model_that_was_trained_last() -> None:
    run = restarted(1)

    assert run.curves.lines["loss"]["worker-0"].points == [(51, 2.0), (101, 2.0)]
    assert not run.curves.marks
    assert "gone: the process that had it began anew without it" in html(run)


def test_what_a_checkpoint_brought_back_is_still_there() -> None:
    run = restarted(451, seed("s0", FOSSILIZED, alpha=1.0, stage_since_step=300))

    assert [x for x, _ in run.curves.lines["loss"]["worker-0"].points] == [300, 400, 501, 551]
    assert [(mark.step, mark.stage) for mark in run.curves.marks] == [(300, "FOSSILIZED")]
    assert "gone:" not in html(run)
