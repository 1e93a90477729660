"""Whatever order the streams are read in, whoever dies, however clocks are set and whatever Redis loses meanwhile:
rounds end, commands are answered once, ranks stay together, and nothing is kept of what is over."""

from __future__ import annotations

import pytest

from tests.town.town import Town

SEEDS = (70_003, 70_028)
"""Of those at which something was found once; `python -m tests.town.run 0 300` tries others."""


@pytest.mark.parametrize("loses", [False, True], ids=["", "history lost"])
@pytest.mark.parametrize("group", [True, False], ids=["a group", "replicas"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_round_ends_and_every_command_is_answered_once(seed: int, group: bool, loses: bool) -> None:
    Town(seed, group=group, loses=loses).live()
