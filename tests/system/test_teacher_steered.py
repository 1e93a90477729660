"""Two ranks under a live coordinator: teachers come by command, before the same step on both, or on neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from esper.client import Controller
from esper.errors import CommandFailedError
from esper.leyline import contracts as pb
from tests.system.processes import Start, ended_well
from tests.system.steered import Answers, Steered
from tests.system.taught import WORLD
from tests.teacher_kit import professor, saved


def saved_in(folders: list[Path], seed: int) -> str:
    """Each rank has a folder of its own, with the same teacher in it."""
    [digest] = {saved(professor(seed), folder)[1] for folder in folders}
    return digest


def test_teachers_come_before_the_same_step_on_both_ranks_or_on_neither(
    redis_url: str, run_id: str, tmp_path: Path, born: Start, ranks: Start
) -> None:
    folders = [tmp_path / f"teachers-{rank}" for rank in range(WORLD)]
    for folder in folders:
        folder.mkdir()
    first, second = (saved_in(folders, seed) for seed in (0, 1))
    _, lone = saved(professor(2), folders[0])

    async def registered(controller: Controller) -> Answers:
        told = {"first": await (await controller.register_teacher(digest=first)).applied()}
        lonely = await controller.register_teacher(digest=lone)
        with pytest.raises(CommandFailedError, match="teacher_refused"):
            await lonely.applied()
        told["second"] = await (await controller.register_teacher(digest=second)).applied()
        told["lone"] = lonely.outcomes
        return told

    async def story(controller: Controller) -> Answers:
        try:
            return await registered(controller)
        finally:
            (tmp_path / "over").touch()

    steered = Steered(redis_url, run_id, tmp_path, born)
    logs = [tmp_path / f"{rank}.log" for rank in range(WORLD)]
    with steered.controlled(story):
        places = [{"ESPER_NAME": f"worker-{rank}", "RANK_OF_TWO": str(rank)} for rank in range(WORLD)]
        told_all = {**steered.worker, "FOLDER": str(tmp_path)}
        both = [
            ranks("tests.system.taught", log, {**told_all, **place}) for log, place in zip(logs, places, strict=True)
        ]
        ended_well(both, logs)
    told = steered.told

    said = [json.loads((tmp_path / f"said-{rank}.json").read_text()) for rank in range(WORLD)]
    steps = {name: {receipt.step for receipt in told[name]} for name in told}
    assert [len(found) for found in steps.values()] == [1, 1, 1] and len(told["first"]) == WORLD
    [taken_first], [taken_second] = steps["first"], steps["second"]
    assert said[0] == said[1]
    assert said[0]["teachers"] == [[1, ""], [taken_first, first], [taken_second, second]]
    assert {receipt.status for receipt in told["lone"]} == {pb.ReceiptStatus.RECEIPT_FAILED}
