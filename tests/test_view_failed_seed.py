"""What is shown of a seed that a gate did not let pass."""

from __future__ import annotations

import pytest

from esper.leyline import contracts as pb
from esper.top import pages
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


G4 = Gate.SEED_GATE_G4_SYSTEM_IMPACT
END = [
    pb.StageRecord(stage=Stage.SEED_STAGE_EMBARGOED, gate=G4, step=108, passed=False, detail="low is -1"),
    pb.StageRecord(stage=Stage.SEED_STAGE_CULLED, step=108, passed=True, detail="low is -1"),
    pb.StageRecord(stage=Stage.SEED_STAGE_EMBARGOED, step=108, passed=True),
    pb.StageRecord(stage=Stage.SEED_STAGE_RESETTING, step=300, passed=True),
    pb.StageRecord(stage=Stage.SEED_STAGE_DORMANT, gate=Gate.SEED_GATE_G5_RESET, step=300, passed=True),
]


@pytest.mark.parametrize("words_first", [True, False])
def test_a_gate_that_ends_a_seed_held_it_and_what_came_of_it_follows(words_first: bool) -> None:
    picture = Picture(RUN)
    asked = command("c1", 0, pb.SeedOperation.SEED_OP_FOSSILIZE, "s0")
    told = {"stage": Stage.SEED_STAGE_EMBARGOED, "gate": G4, "detail": "low is -1"}
    report = pb.SeedReport(seed_id="s0", stage=Stage.SEED_STAGE_DORMANT, history=END)
    live = [
        asked,
        receipt(asked, "worker-0", 1, Status.RECEIPT_FAILED, **told),
        beat("worker-0", 2_000, seed("s0", Stage.SEED_STAGE_EMBARGOED, stage_since_step=108), step=200),
        beat("worker-0", 4_000, seed("s0", Stage.SEED_STAGE_DORMANT, stage_since_step=300), step=400),
    ]
    words = [beat("worker-0", 5_000, report=pb.WorkerReport(worker="worker-0", seeds=[report]))]
    for message in [*words, *live] if words_first else [*live, *words]:
        picture.note(message)

    page = pages.history(picture, "s0", 80, None)

    assert [line[27:].split("  ")[0] for line in page if line.startswith("step ")] == [
        "held",
        "CULLED",
        "EMBARGOED",
        "RESETTING",
        "DORMANT",
    ]
