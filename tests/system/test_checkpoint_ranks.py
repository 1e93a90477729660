"""Two processes go back to, and resume from, what both of them have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
RANK = """
import sys
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist
from esper.tolaria.reduce import SeedReducer
from tests.checkpoint_kit import Training, equal

folder, rank = Path(sys.argv[1]), int(sys.argv[2])
patience = timedelta(seconds=150)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=patience)
reducer = SeedReducer(dist.group.WORLD)

def training():
    place = {"rank": rank, "world_size": 2, "mean": lambda value: float(reducer.mean(torch.tensor(value)))}
    return Training(folder / f"rank-{rank}", **place)

first, states = training(), {}
for step in (2, 3, 4):
    first.train(1)
    first.checkpoints.save(step)
    states[step] = first.everything()
spoilt = {0: 4, 1: 3}[rank]  # of each rank another one
for file in (folder / f"rank-{rank}").glob(f"step-{spoilt:012d}-*/manifest.json"):
    file.write_bytes(b"{}")
receipts = [first.roll_back(step) for step in (4, 3, 2)]
went_back = equal(first.everything(), states[2])
again = training()
place = again.checkpoints.resume()
print([receipt.status for receipt in receipts], went_back, place.step, equal(again.everything(), states[2]))
"""


@pytest.mark.system
@pytest.mark.timeout(180)
def test_two_ranks_take_the_newest_that_verifies_on_both(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(tmp_path), str(rank)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=150) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()

    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert [out.splitlines()[-1] for out, _ in said] == ["[4, 4, 3] True 2 True"] * 2  # failed, failed, applied
