"""Who resumes within an epoch meets the batches that were left of it, also of those that processes make ahead."""

from __future__ import annotations

from pathlib import Path

from tests.stream_kit import lives, shuffled


def test_batches_that_two_workers_make_ahead_go_on_as_they_were(tmp_path: Path) -> None:
    whole, again, run = lives(tmp_path, lambda: shuffled(noise=True, num_workers=2), at=10)

    assert again == {step: numbers for step, numbers in whole.items() if step >= 9}
    assert run.position.odd == ""


def test_those_of_workers_that_outlive_an_epoch_are_told_of(tmp_path: Path) -> None:
    how = {"noise": True, "num_workers": 2, "persistent_workers": True}
    whole, again, run = lives(tmp_path, lambda: shuffled(**how), at=10)

    assert again[9] != whole[9]
    assert "met another batch in step 9" in run.position.odd
