"""Ranks that hold a model together measure together: each is told where they could not."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from esper.errors import SettingError
from tests.group_kit import said_by_all
from tests.seed_kit import held_out, new_host
from tests.site_kit import attached


def rank(number: int, counts: list[int], folder: Path) -> str:
    """What attach() says to it, of so many held-out batches on each."""
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=number, world_size=len(counts))
    host = new_host()
    fully_shard(host)
    given = held_out(counts[number])
    try:
        attached(host, "body", holdout=(given.batches, given.loss_fn)).close()
    except SettingError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("counts", [[1, 2, 3], [2, 2]])
def test_ranks_of_a_split_model_hold_out_as_many_batches(counts: list[int], tmp_path: Path) -> None:
    said = said_by_all([partial(rank, number, counts, tmp_path) for number in range(len(counts))], tmp_path)

    if counts == [2, 2]:
        assert said == ["", ""]
    else:
        told = "number of holdout's batches is {}; expected as many on every rank, 2 on average here"
        assert [each.partition(":")[0] for each in said] == [told.format(num) for num in counts]
