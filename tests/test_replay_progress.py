"""Whoever waits for a replay is told now and then how far it is: which step its slowest rank has come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from esper.cli.running.rerun import ReplayProgress
from esper.leyline import contracts as pb
from esper.session.replay_link import ReplayLink

PLANS = [pb.ReplayPlan(rank=rank, last_step=46_100) for rank in (0, 1)]


def at(link: ReplayLink, step: int) -> None:
    link.send(pb.ToRuntime(heartbeat=pb.Heartbeat(step=step)))


def test_each_half_minute_the_step_of_the_slowest_rank_is_told(tmp_path: Path) -> None:
    links = [ReplayLink(plan, tmp_path / f"report-{plan.rank}.bin") for plan in PLANS]
    told: list[str] = []
    progress = ReplayProgress(tmp_path, PLANS, 1_000.0, told.append)

    progress.look(1_029.9)
    at(links[0], 7)
    progress.look(1_030.0)
    for link, step in zip(links, (20_000, 19_990), strict=True):
        at(link, step)
    for now_s in (1_059.9, 1_075.0, 1_104.9):
        progress.look(now_s)

    assert told == [
        "replaying 46100 steps on 2 ranks",
        "still replaying after 30 s: step 0 of 46100",
        "still replaying after 75 s: step 19990 of 46100",
    ]


def test_a_rank_that_can_not_say_how_far_it_is_trains_on(tmp_path: Path) -> None:
    link = ReplayLink(PLANS[0], tmp_path / "gone" / "report-0.bin")

    at(link, 7)

    with pytest.raises(FileNotFoundError):  # but what it came to is not lost unsaid
        link.send(pb.ToRuntime(farewell=pb.Heartbeat()))
