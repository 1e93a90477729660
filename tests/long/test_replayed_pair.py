"""A run of two ranks comes to the same parameters again on both, whatever ended their processes in it."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from tests.replayed.pair import PairLife
from tests.replayed.pair_again import replayed
from tests.replayed.pair_plan import PairPlan

SPLIT = 180_018
"""fully_shard has split the host; a trainer is killed, and all go on from checkpoints."""
ROTATED = 0
"""The key is rotated and a leader followed, then a trainer killed; `python -m tests.replayed.run 0 100 two` tries
others."""


def test_a_drawn_run_of_two_ranks_comes_to_the_same_again(tmp_path: Path) -> None:
    life = PairLife(PairPlan.draw(ROTATED), tmp_path)
    with capture_logs():
        life.live()
        come = replayed(life)

    assert "rotate" in life.plan.troubles.values()
    assert any("Killed" in each for each in life.told)
    assert come.refused == ""
    assert come.num_orders


def test_ranks_that_hold_a_model_together_come_to_their_parts_again(tmp_path: Path) -> None:
    life = PairLife(PairPlan.draw(SPLIT), tmp_path)
    with capture_logs():
        life.live()
        come = replayed(life)

    assert len({each.part_digest for each in life.reports()} - {b""}) == life.plan.num
    assert any("Killed" in each for each in life.told) and life.plan.checkpoints
    assert come.refused == ""
    assert come.num_orders
