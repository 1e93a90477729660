"""What a rollback undid is told of each seed that it changed, with who asked for it, and marked in the plots."""

from __future__ import annotations

from itertools import permutations

import pytest

from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Opened
from esper.top.board import ViewState, board
from esper.view.curves import Curves, Mark
from esper.view.picture import Picture
from esper.web.document import ROLLED_BACK, marked, seed_page, unmeasured
from tests.sealed import RUN
from tests.view_kit import Stage, Status, beat, receipt, said, seed, went_back

TOLD = "rolled back to the snapshot of step 80 by command r1"


def rollback() -> Opened:
    kind = pb.CommandType.COMMAND_ROLLBACK
    message = pb.AdaptationCommand(
        version=1, command_id="r1", command_type=kind, rollback_command=pb.RollbackCommand(target_step=80)
    )
    return said(Role.CONTROLLER, "ops", message, 2_000)


def committed(to: Opened) -> Opened:
    return said(Role.COORDINATOR, "coordinator", went_back(to.entry_id, 108), 2_100)


def answered(to: Opened, status: pb.ReceiptStatus = Status.RECEIPT_APPLIED) -> Opened:
    return receipt(to, "worker-0", 2_200, status, detail="rolled back to the snapshot of step 80")


def shown(at_ms: int, stage: pb.SeedLifecycleStage, since: int) -> Opened:
    return beat("worker-0", at_ms, seed("s0", stage, stage_since_step=since), step=since)


def seen(*messages: Opened) -> Picture:
    picture = Picture(RUN)
    for message in messages:
        picture.note(message)
    return picture


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_a_seed_says_what_a_rollback_made_of_it_in_whichever_order_it_is_heard_of(order: tuple[int, ...]) -> None:
    asked = rollback()
    later = [asked, answered(asked), shown(2_300, Stage.SEED_STAGE_PROBATIONARY, 108)]

    picture = seen(shown(1_000, Stage.SEED_STAGE_FOSSILIZED, 90), *(later[number] for number in order))

    [before, since] = picture.seeds.of("s0").moments
    assert before.detail == ""
    assert since.detail == f"{TOLD} of ops; it was FOSSILIZED since step 90"
    assert seed_page(picture.seeds.of("s0"))["moments"][1]["detail"] == since.detail


def test_who_cannot_read_commands_is_told_by_the_commit() -> None:
    asked = rollback()

    picture = seen(answered(asked), committed(asked), shown(2_300, Stage.SEED_STAGE_DORMANT, 108))

    assert [moment.detail for moment in picture.seeds.of("s0").moments] == [TOLD]


def test_a_rollback_that_failed_has_undone_nothing() -> None:
    asked = rollback()
    failed = answered(asked, Status.RECEIPT_FAILED)

    picture = seen(asked, failed, committed(asked), shown(2_300, Stage.SEED_STAGE_TRAINING, 108))

    assert picture.seeds.rollbacks == {}
    assert [moment.detail for moment in picture.seeds.of("s0").moments] == [""]


def test_the_screen_tells_of_the_last_rollback_in_a_line() -> None:
    asked = rollback()

    before, since = seen(asked), seen(asked, answered(asked))

    told = [[line.text for line in board(picture, ViewState(120))] for picture in (before, since)]
    assert not any(text.startswith("ROLLBACK") for text in told[0])
    assert f"ROLLBACK  before step 108: {TOLD} of ops" in told[1]


def test_plots_mark_a_rollback_beside_the_moments_of_seeds() -> None:
    curves, asked = Curves(), rollback()
    curves.note(shown(1_000, Stage.SEED_STAGE_FOSSILIZED, 90))

    picture = seen(asked, answered(asked))

    assert marked(curves, picture) == [Mark(90, "s0", "FOSSILIZED"), Mark(108, "", ROLLED_BACK)]


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([Stage.SEED_STAGE_SHADOWING], "Not measured: G4 does so before a seed becomes part of the model."),
        ([Stage.SEED_STAGE_FOSSILIZED], "Not known: what is read here begins behind this seed"),
        ([Stage.SEED_STAGE_GERMINATED, Stage.SEED_STAGE_EMBARGOED], "Not measured: G4 does so before"),
    ],
)
def test_a_gain_that_may_have_been_told_before_is_not_called_unmeasured(
    stages: list[pb.SeedLifecycleStage], expected: str
) -> None:
    picture = seen(*(shown(1_000 * number, stage, 90 + number) for number, stage in enumerate(stages, 1)))

    assert unmeasured(picture.seeds.of("s0")).startswith(expected)
