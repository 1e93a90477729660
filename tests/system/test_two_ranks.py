"""Two ranks under DDP, through the lives of two seeds, a rollback and a pause."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from esper.leyline import contracts as pb
from tests.faults.processes import Running
from tests.system.processes import PATIENCE_S, Start
from tests.system.scripted import Script
from tests.system.two_ranks_kit import (
    AGAIN,
    END,
    EVALUATE,
    FOSSILIZE,
    GERMINATE,
    GRAFT,
    PAUSE,
    ROLL_BACK,
    ROSTER,
    SEEDS,
    SNAPSHOT,
    STABILIZE,
    TRAIN,
    Stage,
    command,
    decide,
    decisions,
    last_words,
    messages,
    wait_until,
)

RUN_ID = "ranks-00000002"
"""Seeds begin with weights that are drawn by it: by 1 in some 140 the lora has learned nothing by its graft."""
STAGES = [  # entered before these steps
    (GERMINATE, Stage.SEED_STAGE_GERMINATED),
    (TRAIN, Stage.SEED_STAGE_TRAINING),
    (GRAFT, Stage.SEED_STAGE_BLENDING),
    (STABILIZE, Stage.SEED_STAGE_SHADOWING),
    (EVALUATE, Stage.SEED_STAGE_PROBATIONARY),
    (FOSSILIZE, Stage.SEED_STAGE_FOSSILIZED),
    (ROLL_BACK, Stage.SEED_STAGE_PROBATIONARY),
    (AGAIN, Stage.SEED_STAGE_FOSSILIZED),
]


@dataclass
class Run:
    """What both ranks wrote down, and the script that steered them."""

    script: Script
    ranks: list[dict[str, Any]]

    def seen(self, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
        first, second = (rank["seen"][str(step)] for rank in self.ranks)
        return first, second


def decide_once_both_listen(script: Script, ranks: list[Running]) -> None:
    """What was decided before a trainer began does not bind it."""
    wait_until(ranks, lambda: {beat.worker for beat in messages(script, "heartbeats")} == {*ROSTER})
    for number, (step, commands, fields) in enumerate(decisions(), 1):
        decide(script, number, step, *commands, **fields)


def start(script: Script, directory: Path, begin: Start) -> list[Running]:
    started = []
    for rank in (0, 1):
        told = {"RANK_OF_TWO": f"{rank}|{len(decisions())}|{END}|{directory}"}
        environment = script.environment(f"worker-{rank}") | told
        started.append(begin("tests.system.rank", directory / f"{rank}.log", environment))
    return started


def resume_once_both_hold(script: Script, ranks: list[Running]) -> None:
    """As a coordinator would: ask both, see that they hold before the same step, and resume there."""
    round_ = len(decisions()) + 1
    wait_until(ranks, lambda: {b.worker for b in messages(script, "heartbeats") if paused(b)} == {*ROSTER})
    proposal = pb.BarrierProposal(version=1, round=round_, roster_generation=1, roster=ROSTER, time_ns=1)
    script.publish("decisions", proposal)
    wait_until(ranks, lambda: len(messages(script, "votes")) == 2)
    resume = command(pb.CommandType.COMMAND_PAUSE, "resume", pause_command=pb.PauseCommand(resume=True))
    decide(script, round_, PAUSE, resume)


def paused(heartbeat: pb.Heartbeat) -> bool:
    return heartbeat.busy == pb.BusyWith.BUSY_PAUSED and heartbeat.step == PAUSE


@pytest.fixture(scope="module")
def run(redis_url: str, tmp_path_factory: pytest.TempPathFactory, ranks: Start) -> Run:
    directory = tmp_path_factory.mktemp("ranks")
    script = Script(redis_url, RUN_ID, directory)
    both = start(script, directory, ranks)
    try:
        decide_once_both_listen(script, both)
        resume_once_both_hold(script, both)
        assert [rank.wait(PATIENCE_S) for rank in both] == [0, 0], last_words(directory)
    finally:
        for rank in both:
            rank.kill()
            rank.wait()
    return Run(script, [json.loads((directory / f"{rank}.json").read_text()) for rank in (0, 1)])


def test_both_ranks_pass_through_the_stages_at_the_same_steps(run: Run) -> None:
    for step, stage in STAGES:
        for seen in run.seen(step):
            assert seen["stages"] == dict.fromkeys(SEEDS, stage), step


def test_both_ranks_hold_equal_weights_before_every_step(run: Run) -> None:
    for step in range(1, END + 1):
        one, other = run.seen(step)
        assert one["weights"] == other["weights"], step
    assert len({run.seen(step)[0]["weights"] for step in range(1, END + 1)}) > END - 5  # and they do change
    assert run.ranks[0]["last"] == run.ranks[1]["last"]


def test_a_training_seed_leaves_the_hosts_gradients_as_under_ddp_alone(run: Run) -> None:
    for step in range(1, GRAFT):
        assert all(seen["as_alone"] for seen in run.seen(step)), step
    assert not any(seen["as_alone"] for seen in run.seen(GRAFT + 1))  # alpha is above 0 by then


def test_a_fossils_gradients_are_averaged_before_backward_returns(run: Run) -> None:
    bare, grown = run.seen(FOSSILIZE - 1)[0]["parameters"], run.seen(FOSSILIZE)[0]["parameters"]
    assert grown == bare + 4  # the mlp's; the lora was folded into a weight
    for step in range(1, END + 1):
        one, other = run.seen(step)
        assert one["norm"] == other["norm"], step


def test_a_rollback_returns_every_bit_of_the_snapshots_state(run: Run) -> None:
    for then, now, late in zip(run.seen(SNAPSHOT), run.seen(ROLL_BACK), run.seen(ROLL_BACK - 1), strict=True):
        assert now["state"] == then["state"] != late["state"]
        assert now["parameters"] == then["parameters"] == late["parameters"] - 4


def test_a_pause_and_a_resume_hold_both_ranks_before_the_same_step(run: Run) -> None:
    votes = messages(run.script, "votes")
    assert {(vote.worker, vote.held, vote.held_step, vote.step) for vote in votes} == {
        ("worker-0", True, PAUSE, PAUSE),
        ("worker-1", True, PAUSE, PAUSE),
    }
    assert votes[0].parameter_digest == votes[1].parameter_digest
    assert [rank["last"]["steps"] for rank in run.ranks] == [END, END]


def test_every_command_is_applied_by_both_ranks_and_receipted_once(run: Run) -> None:
    receipts = [each for each in messages(run.script, "receipts") if isinstance(each, pb.CommandReceipt)]
    failed = [receipt.detail for receipt in receipts if receipt.status != pb.ReceiptStatus.RECEIPT_APPLIED]
    assert failed == []
    assert len(receipts) == len({(receipt.command_id, receipt.worker) for receipt in receipts}) == 2 * 19
