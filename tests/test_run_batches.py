"""run.batches() goes on where a resumed run stands in its epoch, and says that the run can be replayed."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from esper.leyline import contracts as pb
from esper.session.batches import LoopPosition
from tests.seed_kit import Op, new_host, optimizer_of
from tests.session_kit import backward, on_seed, order, train, unsteered


class Loader:
    """Counts what it has handed out."""

    def __init__(self, position: int = 0) -> None:
        self.position = position

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: Any) -> None:
        self.position = state["position"]


def numbers(epoch: int) -> range:
    return range(10 * epoch, 10 * epoch + 10)


def test_a_loop_that_marks_no_step_is_told_so_at_the_end_of_its_epoch() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")

    with capture_logs() as told:
        run.epoch_end()
        with run.step():
            backward(host, 1)
        run.epoch_end()

    assert [line["event"] for line in told] == ["epoch.without_steps"]


def test_an_epoch_has_its_own_batches_and_the_next_one_others() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    assert "neither from run.batches() nor" in run.not_replayable

    seen = []
    for _ in range(2):
        for number in run.batches(numbers):
            seen.append(number)
            train(run, host, 1)
        run.epoch_end()

    assert seen == [*numbers(0), *numbers(1)]
    assert run.not_replayable == ""


def test_a_resumed_run_goes_on_behind_what_it_has_trained_on() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    run.step_number, run.epoch = 37, 3
    run.position.load_state_dict({"epoch_began": 31, "loader": None})

    assert list(run.batches(numbers)) == [36, 37, 38, 39]


@pytest.mark.parametrize(("num", "left"), [(12, [*range(42, 48)]), (8, [30, 31]), (6, []), (4, [])])
def test_one_whose_epochs_are_longer_or_shorter_since_goes_on_in_its_own_and_then_has_whole_ones(
    num: int, left: list[int]
) -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    run.step_number, run.epoch = 37, 3
    run.position.load_state_dict({"epoch_began": 31, "num_batches": 6})
    seen = []

    for _ in range(2):
        for number in run.batches(lambda epoch: range(num * epoch, num * epoch + num)):
            seen.append(number)
            train(run, host, 1)
        run.epoch_end()

    assert seen == [*left, *range(4 * num, 5 * num)]
    assert (run.epoch, run.step_number) == (5, 37 + len(seen))


def test_one_that_takes_several_batches_a_step_or_went_on_from_an_error_does_too() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    batches = run.batches(numbers)
    for num in (2, 1, 2):  # the second step fails, and the one after it is the second then
        taken = [next(batches) for _ in range(num)]
        if num == 1:
            with pytest.raises(KeyError), run.step():
                raise KeyError(taken)
        else:
            train(run, host, 1)
    behind = run.position.state_dict()
    next(batches)  # before the step is begun, at which a checkpoint is made
    at_its_beginning = run.position.state_dict()

    for kept in (behind, at_its_beginning):
        again = unsteered(new_host(), optimizer_of("sgd", list(host.parameters())), "body")
        again.step_number = run.step_number
        again.position.load_state_dict(kept)
        assert list(again.batches(numbers)) == [5, 6, 7, 8, 9]


def test_two_streams_side_by_side_each_go_on_behind_what_was_trained_on() -> None:
    """As where some examples have labels and others have none."""
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    taken = []
    for pair in zip(run.batches(numbers), run.batches(numbers), strict=True):
        taken.append(pair)
        if len(taken) == 4:  # before the step is begun, at which a checkpoint is made
            break
        train(run, host, 1)
    kept = run.position.state_dict()

    again = unsteered(new_host(), optimizer_of("sgd", list(host.parameters())), "body")
    again.step_number = run.step_number
    again.position.load_state_dict(kept)

    assert next(zip(again.batches(numbers), again.batches(numbers), strict=True)) == taken[-1] == (3, 3)


def test_batches_that_go_on_into_the_next_epoch_count_for_that_one() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", steps_per_epoch=3)

    for _ in run.batches(numbers):
        train(run, host, 1)

    assert (run.epoch, run.step_number) == (3, 11)
    assert list(run.batches(numbers)) == [*numbers(3)][1:]


def test_the_orders_that_led_to_a_state_go_with_the_position_and_one_of_old_does_not_know_them() -> None:
    host = new_host()
    with unsteered(host, optimizer_of("sgd", list(host.parameters())), "body") as run:
        order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"))
        train(run, host, 2)
        led_here = run.position.orders
        kept = LoopPosition()
        kept.load_state_dict(run.position.state_dict())

    assert led_here.num == kept.orders.num == 1
    assert led_here.digest == kept.orders.digest != LoopPosition().orders.digest
    kept.load_state_dict({"epoch_began": 31, "loader": None})
    kept.orders.note(pb.BarrierCommit(round=2))
    assert kept.orders.digest == b""


def test_a_loaders_state_goes_with_the_position_and_one_of_old_alone_comes_back() -> None:
    position, loader = LoopPosition(Loader(7)), Loader()
    position.epoch_began = 5

    again = LoopPosition(loader)
    again.load_state_dict(position.state_dict())
    assert (again.epoch_began, loader.position) == (5, 7)

    again.load_state_dict({"position": 9})
    assert (again.epoch_began, loader.position) == (5, 9)


def test_a_run_with_a_stateful_loader_can_be_replayed_and_one_whose_loop_fails_can_not() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", loader=Loader())
    assert run.not_replayable == ""

    try:
        with run:
            train(run, host, 1)
            raise KeyError("a bug in the loop")
    except KeyError:
        assert "ended by KeyError" in run.not_replayable
