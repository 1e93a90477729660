"""Workers in no process group are all of rank 0: their checkpoints lie apart by their names."""

from __future__ import annotations

import pytest

from esper.session.checkpointing import folder_of
from esper.session.options import WorkerIdentity


@pytest.mark.parametrize(
    ("name", "rank", "world_size", "folder"),
    [
        ("worker-0", 0, 1, "rank-0"),
        ("north", 0, 1, "north"),
        ("south", 0, 1, "south"),
        ("north", 0, 2, "rank-0"),
        ("worker-1", 1, 2, "rank-1"),
    ],
)
def test_a_rank_has_its_number_and_a_replica_its_name(name: str, rank: int, world_size: int, folder: str) -> None:
    assert folder_of(WorkerIdentity(name, "r0", rank, world_size)) == folder
