"""A seed that never was is not shown among those that are."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.view.picture import Picture
from tests.sealed import RUN
from tests.view_kit import Gate, Stage, Status, beat, command, receipt, seed


def test_a_seed_whose_germination_failed_is_none_of_the_run() -> None:
    picture = Picture(RUN)
    asked = command("c1", 0, pb.SeedOperation.SEED_OP_GERMINATE, "s0", "head")
    picture.note(asked)
    picture.note(receipt(asked, "worker-0", 1, Status.RECEIPT_FAILED, gate=Gate.SEED_GATE_G0_SANITY))
    assert picture.seeds.ordered == []

    picture.note(beat("worker-0", 2_000, seed("s0", Stage.SEED_STAGE_GERMINATED), step=200))
    assert [one.state.seed_id for one in picture.seeds.ordered] == ["s0"]
    assert [moment.passed for moment in picture.seeds.by_id["s0"].moments] == [True, False]
