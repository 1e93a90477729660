"""Who resumes within an epoch meets the batches that were left of it, also of a loader that draws as it goes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs

from esper.session import records
from tests.stream_kit import NUM, Make, begun, lives, met, seeded, shuffled


@pytest.mark.parametrize(
    "at", [6, 7, 10]
)  # resumed before 5, 7 and 9: late in an epoch, at its beginning, in its midst
@pytest.mark.parametrize("noise", [False, True])
def test_a_shuffled_loader_goes_on_in_the_order_that_it_had(tmp_path: Path, at: int, noise: bool) -> None:
    whole, again, run = lives(tmp_path, lambda: shuffled(noise=noise), at)

    began = at - 1 + at % 2
    assert again == {step: numbers for step, numbers in whole.items() if step >= began}
    assert len({each for step in range(7, 13) for each in whole[step]}) == NUM
    assert run.position.odd == ""


def test_one_that_takes_several_a_step_does_too(tmp_path: Path) -> None:
    whole, again, run = lives(tmp_path, lambda: shuffled(noise=True), at=8, num=2)

    assert again == {step: numbers for step, numbers in whole.items() if step >= 7}
    assert run.position.odd == ""


def test_a_checkpoint_made_unforeseen_is_gone_on_from_with_its_own_batch(tmp_path: Path) -> None:
    """As behind a rollback, which nobody expects as the batch is made."""
    seeded(0)
    first = begun(tmp_path)
    whole = {}
    for step, numbers in met(first, shuffled()):
        whole[step] = numbers
        if step == 4:
            assert first.checkpoints is not None
            first.checkpoints.save(step, first.epoch)
            break
    first.abandon()
    seeded(99)
    run = begun(tmp_path, resume=True)

    again = dict(met(run, shuffled(), last=6))

    assert again[4] == whole[4]
    assert {each for step in (1, 2, 3) for each in whole[step]}.isdisjoint(
        each for step in (4, 5, 6) for each in again[step]
    )
    assert run.position.odd == ""


def test_a_loader_with_a_generator_of_its_own_for_all_epochs_is_told_of_and_not_replayed(tmp_path: Path) -> None:
    def make() -> Make:
        return shuffled(generator=torch.Generator().manual_seed(5))

    with capture_logs() as told:
        _, _, run = lives(tmp_path, make, at=10)
    with begun(tmp_path / "killed", resume=True) as later:
        pass

    [line] = [line for line in told if line["event"] == "batches.differ"]
    assert "in step 9" in line["why"]
    assert records.ended(run.status, run.close(), "", run.position).ended.not_replayable == line["why"]
    assert later.position.odd == line["why"]
