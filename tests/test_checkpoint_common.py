"""Ranks agree on the newest step that is good on all of them."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.tolaria.checkpoints.common import newest_common
from tests.rank_kit import Averaging
from tests.seed_kit import new_host
from tests.session_kit import UNSTEERED, joined


def agreed(held: list[set[int]]) -> list[int | None]:
    ranks = Averaging(len(held))

    def one(rank: int) -> int | None:
        steps = sorted(range(1, 40), reverse=True)
        return newest_common(steps, held[rank].__contains__, lambda value: ranks.mean(rank, value))

    with ThreadPoolExecutor(len(held)) as pool:
        return list(pool.map(one, range(len(held))))


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_largest_of_the_intersection(seed: int) -> None:
    draw = random.Random(seed)
    held = [set(draw.sample(range(1, 40), draw.randint(0, 12))) for _ in range(draw.randint(1, 4))]
    common = set.intersection(*held)

    assert agreed(held) == [max(common, default=None)] * len(held)


@pytest.mark.parametrize(("dtype", "step"), [(torch.float32, 2**24 + 3), (torch.bfloat16, 301)])
def test_a_step_is_averaged_as_it_is_whatever_torchs_default_dtype(
    tmp_path: Path, dtype: torch.dtype, step: int
) -> None:
    keyring, host = tmp_path / "worker.json", new_host()
    MasterKeyring.new(time.time_ns()).derive(UNSTEERED, [Role.WORKER]).save(keyring)
    checkpoints = joined(tmp_path / "checkpoints", keyring, host).checkpoints
    assert checkpoints is not None
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        mean = checkpoints.mean(float(step))
    finally:
        torch.set_default_dtype(before)

    assert mean == step
