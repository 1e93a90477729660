"""One of two ranks that go back to, and resume from, the newest checkpoint that both of them have."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from esper.tolaria.reduce import SeedReducer
from tests.checkpoint_kit import Training
from tests.seed_kit import equal

WORLD_SIZE = 2
PATIENCE = timedelta(seconds=150)
SPOILT = {0: 4, 1: 3}
"""Of each rank another step's."""


def main(folder: Path, rank: int) -> None:
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=WORLD_SIZE, timeout=PATIENCE)
    reducer = SeedReducer(dist.group.WORLD)

    def training() -> Training:
        place: dict[str, Any] = {"rank": rank, "world_size": WORLD_SIZE}
        return Training(folder / f"rank-{rank}", mean=lambda value: float(reducer.mean(torch.tensor(value))), **place)

    first, states = training(), {}
    for step in (2, 3, 4):
        first.train(1)
        first.checkpoints.save(step)
        states[step] = first.everything()
    for file in (folder / f"rank-{rank}").glob(f"step-{SPOILT[rank]:012d}-*/manifest.json"):
        file.write_bytes(b"{}")
    receipts = [first.roll_back(step) for step in (4, 3, 2)]
    went_back = equal(first.everything(), states[2])
    again = training()
    place = again.checkpoints.resume()
    assert place is not None
    print([receipt.status for receipt in receipts], went_back, place.step, equal(again.everything(), states[2]))


if __name__ == "__main__":
    main(Path(os.environ["FOLDER"]), int(os.environ["RANK"]))
