"""What a training script gives as held-out examples is taken, refused in one line, or told to be too little."""

from __future__ import annotations

import pytest
import torch
from structlog.testing import capture_logs
from torch import nn

from esper.errors import SettingError
from esper.session.heldout import held_out

PER_EXAMPLE = nn.CrossEntropyLoss(reduction="none")
BATCH = (torch.zeros(16, 4), torch.zeros(16, dtype=torch.int64))


@pytest.mark.parametrize(
    ("given", "met"),
    [
        (BATCH, "holdout is 'tuple of Tensor, Tensor'"),
        ([BATCH], "holdout is 'list of tuple'"),
        (BATCH[0], "holdout is 'Tensor'"),
        ((16, PER_EXAMPLE), "holdout is 'tuple of int, CrossEntropyLoss'"),
        (([BATCH], PER_EXAMPLE, "forward"), "holdout is 'tuple of list, CrossEntropyLoss, str'"),
        (([BATCH], PER_EXAMPLE, PER_EXAMPLE, 1), "holdout is 'tuple of list, CrossEntropyLoss, CrossEntropyLoss, int'"),
        ((BATCH, PER_EXAMPLE), "batch of holdout is 'Tensor'"),
        (([(*BATCH, 1)], PER_EXAMPLE), "batch of holdout is 'tuple of Tensor, Tensor, int'"),
    ],
)
def test_anything_but_batches_and_a_loss_is_refused(given: object, met: str) -> None:
    with pytest.raises(SettingError) as refused:
        held_out(given, 256)

    assert str(refused.value).startswith(f"{met}; expected ([(inputs, targets), ...], loss), where ")


def test_a_loss_that_is_one_number_for_all_examples_of_a_batch_is_refused() -> None:
    with pytest.raises(SettingError) as refused:
        held_out(([BATCH], nn.CrossEntropyLoss()), 16)

    assert str(refused.value) == "reduction of holdout's loss is 'mean'; expected 'none': one loss per example"


@pytest.mark.parametrize(("num_batches", "told"), [(0, []), (3, [48]), (4, [])])
def test_too_few_examples_are_taken_and_told_of(num_batches: int, told: list[int]) -> None:
    with capture_logs() as events:
        made = held_out(([BATCH] * num_batches, PER_EXAMPLE), 64)

    assert made is not None and len(made.batches) == num_batches
    assert [event["num_examples"] for event in events if event["event"] == "holdout.too_small"] == told


def test_without_any_nothing_is_measured() -> None:
    assert held_out(None, 64) is None
