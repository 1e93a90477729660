"""A rollback by a live coordinator to a step that only the disks of its two ranks hold."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from esper.client import Controller
from esper.leyline import contracts as pb
from tests.system.deep import EVERY
from tests.system.processes import Start
from tests.system.steered import Answers, Steered

WORLD_SIZE = 2  # of one rank tests/long/test_checkpoint_rollback.py tells


def first_checkpoint_above(step: int) -> int:
    return (step // EVERY + 1) * EVERY + 1


async def story(controller: Controller, stop: Path) -> Answers:
    """A seed, which brings the only snapshot in memory; further checkpoints; then back to one of these."""
    try:
        begun = await (await controller.germinate("s0", site="body", blueprint="mlp")).applied()
        target = first_checkpoint_above(begun[0].step)
        await controller.until(
            lambda workers: len(workers) == WORLD_SIZE and min(w.step for w in workers.values()) > target + 3 * EVERY
        )
        back = await (await controller.rollback(step=target)).applied()
        reached = back[0].step + EVERY
        await controller.until(lambda workers: min(w.step for w in workers.values()) > reached)
    finally:
        stop.touch()
    return {"begun": begun, "back": back}


def place(steered: Steered, folder: Path, rank: int) -> dict[str, str]:
    """What one rank is told."""
    own = {"ESPER_NAME": f"worker-{rank}", "DEEP_RANK": str(rank), "DEEP_WORLD": str(WORLD_SIZE)}
    return {**steered.worker, **own, "DEEP_FOLDER": str(folder)}


def test_every_rank_goes_back_to_its_checkpoint_bit_for_bit(
    redis_url: str, run_id: str, tmp_path: Path, born: Start, ranks: Start
) -> None:
    steered = Steered(redis_url, run_id, tmp_path, born)
    both, logs = [], [tmp_path / f"{rank}.log" for rank in range(WORLD_SIZE)]
    with steered.controlled(partial(story, stop=tmp_path / "stop")):
        try:
            for rank, log in enumerate(logs):
                both.append(ranks("tests.system.deep", log, place(steered, tmp_path, rank)))
            ends = [process.wait(200) for process in both]
            assert ends == [0] * WORLD_SIZE, [log.read_text()[-4000:] for log in logs]
        finally:
            for process in both:
                process.kill()
                process.wait()

    begun, back = steered.told["begun"], steered.told["back"]
    target, step = first_checkpoint_above(begun[0].step), back[0].step
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD_SIZE)]
    assert [receipt.status for receipt in back] == [pb.ReceiptStatus.RECEIPT_APPLIED] * WORLD_SIZE
    for each in told:
        assert target not in each["memory"]
        assert each["seen"][str(step)] == each["seen"][str(target)] != each["seen"][str(step - 1)]
        assert set(each["seen"][str(step)][1]) == {"s0"}
    assert all(each["seen"] == told[0]["seen"] for each in told)
