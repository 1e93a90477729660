"""Whatever is ordered, killed or lost in a run, it comes to the same parameters again, or it is said why it can't be.

Its log is found sound, each change of it is found, and its decisions part from another run's where those differ.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.replayed.again import Outcome, replayed
from tests.replayed.life import Life
from tests.replayed.plan import Plan

SEEDS = (0, 9, 10, 800023, 900034)
"""Runtimes, trainers and a leader die, the clock is set, a run that has ended is begun again, twice, one that shuffles
is killed within an epoch; `python -m tests.replayed.run 0 300` tries others."""
LOSES = (13, 17)


def lived(seed: int, folder: Path) -> Life:
    life = Life(Plan.draw(seed), folder)
    with capture_logs():
        life.live()
    return life


def outcome(life: Life) -> Outcome:
    with capture_logs():
        return replayed(life)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_run_comes_to_the_same_again(seed: int, tmp_path: Path) -> None:
    come = outcome(lived(seed, tmp_path))

    assert come.refused == ""
    assert come.num_orders


@pytest.mark.parametrize("seed", LOSES)
def test_a_run_of_which_redis_has_lost_the_history_is_not_replayed(seed: int, tmp_path: Path) -> None:
    life = lived(seed, tmp_path)

    assert life.plan.loses
    assert outcome(life).refused


def test_one_seed_draws_one_run(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one, other = lived(10, tmp_path / "one"), lived(10, tmp_path / "other")

    assert one.told == other.told != []
    assert one.kept.sums == other.kept.sums
