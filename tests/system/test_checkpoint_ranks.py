"""Two processes go back to, and resume from, what both of them have."""

from __future__ import annotations

from pathlib import Path

from tests.system.both_resume import WORLD_SIZE
from tests.system.processes import Start, ended_well


def test_two_ranks_take_the_newest_that_verifies_on_both(tmp_path: Path, ranks: Start) -> None:
    logs = [tmp_path / f"{rank}.log" for rank in range(WORLD_SIZE)]

    ended_well(
        [
            ranks("tests.system.both_resume", log, {"FOLDER": str(tmp_path), "RANK": str(rank)})
            for rank, log in enumerate(logs)
        ],
        logs,
    )

    # failed, failed, applied
    assert [log.read_text().splitlines()[-1] for log in logs] == ["[4, 4, 3] True 2 True"] * WORLD_SIZE
