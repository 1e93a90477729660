"""A seed whose process began anew without it is told as gone, and only such a one."""

from __future__ import annotations

import pytest

from esper.leyline import contracts as pb
from esper.top.board import ViewState, board
from esper.view.picture import Picture
from esper.web import document
from tests.sealed import RUN
from tests.view_kit import Stage, Status, beat, command, receipt, seed

FOSSILIZED, TRAINING = Stage.SEED_STAGE_FOSSILIZED, Stage.SEED_STAGE_TRAINING


def row(picture: Picture) -> list[str]:
    """What the screen says of the only seed: site, lane, stage, alpha."""
    line = next(line.text for line in board(picture, ViewState(80, 24)) if line.text.startswith("  s0"))
    return line.split()[1:5]


def test_a_seed_that_a_new_process_does_not_have_is_gone() -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, seed("s0", FOSSILIZED, alpha=1.0), step=900))
    picture.note(beat("worker-0", 20_000, step=2, incarnation=8))

    shown = document.seed_row(picture.seeds.by_id["s0"])

    assert row(picture)[1:] == ["G=T=B=S=P=F", "GONE", "-"]
    assert (shown["stage"], shown["alpha"]) == ("GONE", None)


def test_it_is_there_again_once_the_process_has_it_from_a_checkpoint() -> None:
    picture = Picture(RUN)
    for at_ms, fields in ((0, {"step": 900}), (20_000, {"step": 1}), (25_000, {"step": 851})):
        shown = [] if fields["step"] == 1 else [seed("s0", TRAINING)]
        picture.note(beat("worker-0", at_ms, *shown, **fields))
        assert not picture.seeds.by_id["s0"].is_gone


def test_a_replica_that_has_it_still_goes_on_showing_it() -> None:
    picture = Picture(RUN)
    for worker in ("worker-0", "worker-1"):
        picture.note(beat(worker, 0, seed("s0", TRAINING), step=900))
    picture.note(beat("worker-0", 20_000, step=2, incarnation=8))
    picture.note(beat("worker-1", 20_100, seed("s0", TRAINING), step=990))

    assert row(picture)[1:3] == ["G=T-b-s-p-f", "TRAINING"]


@pytest.mark.parametrize(
    ("age_ms", "stage", "told"),
    [
        (100, FOSSILIZED, "FOSSILIZED"),  # not shown yet
        (9_000, FOSSILIZED, "GONE"),
        (9_000, Stage.SEED_STAGE_TERMINATED, "TERMINATED"),  # its slot was closed: shown no more
    ],
)
def test_of_a_seed_that_no_heartbeat_has_shown_the_last_answer_tells(
    age_ms: int, stage: pb.SeedLifecycleStage, told: str
) -> None:
    picture = Picture(RUN)
    asked = command("c1", 0, pb.SeedOperation.SEED_OP_FOSSILIZE, "s0")
    picture.note(asked)
    picture.note(receipt(asked, "worker-0", 10, Status.RECEIPT_APPLIED, stage=stage, step=900))
    picture.note(beat("worker-0", 10 + age_ms, step=901))

    assert row(picture)[2:] == [told, "-"]
