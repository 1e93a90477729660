"""Ranks that hold a model together measure together: each is told where they could not."""

from __future__ import annotations

import os
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from esper.errors import SettingError
from tests.seed_kit import held_out, new_host
from tests.site_kit import attached


def rank(number: int, counts: list[int], folder: Path, line: Connection) -> None:
    """What attach() says to it, of so many held-out batches on each."""
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=number, world_size=len(counts))
    host = new_host()
    fully_shard(host)
    given = held_out(counts[number])
    try:
        attached(host, "body", holdout=(given.batches, given.loss_fn)).close()
        line.send("")
    except SettingError as error:
        line.send(str(error))
    line.recv()  # the others may still be in attach()
    os._exit(0)


@pytest.mark.parametrize("counts", [[1, 2, 3], [2, 2]])
def test_ranks_of_a_split_model_hold_out_as_many_batches(counts: list[int], tmp_path: Path) -> None:
    context, lines = get_context("fork"), []
    for number in range(len(counts)):
        line, its = context.Pipe()
        context.Process(target=rank, args=(number, counts, tmp_path, its), daemon=True).start()
        its.close()
        lines.append(line)

    assert all(line.poll(120.0) for line in lines)
    said = [line.recv() for line in lines]
    for line in lines:
        line.send("go")

    if counts == [2, 2]:
        assert said == ["", ""]
    else:
        told = "number of holdout's batches is {}; expected as many on every rank, 2 on average here"
        assert [each.partition(":")[0] for each in said] == [told.format(num) for num in counts]
