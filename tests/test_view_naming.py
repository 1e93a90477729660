"""Names stand in the order of the numbers in them, the same wherever seeds and workers are shown."""

from __future__ import annotations

import pytest

from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.view.naming import SortKey, by_value
from esper.view.orders import Orders
from esper.view.picture import Picture
from tests.sealed import RUN
from tests.view_kit import Stage, command, receipt, said, seed

SEEDS = ["head-2-seed-9", "head-10-seed-1", "seed", "seed-1", "seed-2", "seed-10", "seed-100"]


@pytest.mark.parametrize(
    "names",
    [
        SEEDS,
        ["", "0", "00", "7", "007a", "7b", "a"],
        ["s", "s-01", "s-1", "s-02", "s-2"],
        ["s1", "s1a", "s1b", "s2"],
        ["9" * 5_000, "1" + "0" * 5_000],  # more digits than Python makes a number of
        ["s1", "s\u00b2", "s\u0662"],  # digits of other scripts are letters
    ],
)
def test_numbers_in_names_count_by_value(names: list[str]) -> None:
    for mixed in (names[::-1], [*names[1::2], *names[::2]]):
        assert sorted(mixed, key=by_value) == names


def test_seeds_workers_and_answers_of_a_picture_stand_in_that_order() -> None:
    picture, names = Picture(RUN), [f"worker-{number}" for number in (10, 2, 1)]
    asked = command("c1", 0, pb.SeedOperation.SEED_OP_CULL, "seed-1")
    picture.note(asked)
    for name in names:
        shown = [seed(each, Stage.SEED_STAGE_TRAINING) for each in sorted(SEEDS)]
        told = pb.Heartbeat(version=1, worker=name, world_size=1, step=1, seeds=shown)
        picture.note(said(Role.WORKER, name, told))
        picture.note(receipt(asked, name, 10, pb.ReceiptStatus.RECEIPT_APPLIED, step=1))

    assert [each.state.seed_id for each in picture.seeds.ordered] == SEEDS
    assert [each.name for each in picture.workers.ordered] == names[::-1]
    assert [each.worker for each in picture.orders.newest[0].answers] == names[::-1]


def test_names_of_hundreds_that_answered_are_put_in_order_for_none_of_their_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = command("c1", 0, pb.SeedOperation.SEED_OP_CULL, "seed-1")
    orders, looked = Orders(), list[str]()

    def noted(name: str) -> SortKey:
        looked.append(name)
        return by_value(name)

    monkeypatch.setattr("esper.view.orders.by_value", noted)
    applied, failed = pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED
    for number in range(256):
        status = failed if number in (10, 9) else applied
        answer = receipt(asked, f"worker-{number}", 10, status).message
        assert isinstance(answer, pb.CommandReceipt)
        order = orders.note_receipt(answer)

    assert set(looked) == {"worker-9", "worker-10"}
    assert order.refusal is not None and order.refusal.worker == "worker-9"
    assert (order.status, len(order.answers)) == ("failed", 256)
