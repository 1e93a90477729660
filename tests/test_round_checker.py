"""The checker of rounds: what it calls broken, and that it knows nothing of the runtime."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.check_rounds import judge_rounds, rounds_committed, waits_s
from tests.faults.history import Record

LIFE = [("voted", 10), ("began", 10), ("began", 17), ("committed", 18), ("applied", 18), ("began", 18)]
"""What happened, and the step that it is about."""


def record(what: str, step: int, at: int = 0, **facts: Any) -> Record:
    common = {"worker": "worker-0", "incarnation": 1, "round": 1, "generation": 1, "position": ["7-0", ""]}
    common |= {"commands": ["c1", "c2"]}
    return {**common, "what": what, "step": step, "at_ns": at * 1_000_000_000, **facts}


def life(*changed: tuple[str, int], **facts: Any) -> list[Record]:
    return [record(what, step, at, **facts) for at, (what, step) in enumerate(changed or LIFE)]


def test_a_faultless_history_is_judged_so() -> None:
    history = life() + life(incarnation=2, worker="worker-1")

    assert not list(judge_rounds(history))
    assert rounds_committed(history) == {(1, 1)}
    assert list(waits_s(life())) == [3.0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ([("voted", 10), ("began", 18)], "began step 18, having voted"),
        ([("committed", 18), ("began", 18)], "began step 18 without"),
        ([("committed", 18), ("applied", 17)], "before step 17, not 18"),
        ([("committed", 18), ("applied", 18), ("applied", 18)], "applied (1, 1) 2 times"),
        ([("applied", 18)], "before step 18, not None"),
        ([("committed", 18), ("committed", 19), ("applied", 18)], "decided in 2 ways"),
        ([("committed", 18), ("aborted", 0), ("applied", 18)], "decided in 2 ways"),
    ],
)
def test_what_one_rank_does_wrong_is_named(changed: list[tuple[str, int]], said: str) -> None:
    [sentence] = judge_rounds(life(*changed))

    assert said in sentence


def test_two_ranks_that_heard_of_different_log_positions_are_named() -> None:
    history = life() + life(incarnation=2, position=["8-0", ""])

    [sentence] = judge_rounds(history)

    assert "decided in 2 ways" in sentence


@pytest.mark.parametrize("commands", [["c1"], ["c2", "c1"]])
def test_two_ranks_that_heard_of_different_commands_are_named(commands: list[str]) -> None:
    history = life() + life(incarnation=2, commands=commands)

    [sentence] = judge_rounds(history)

    assert "decided in 2 ways" in sentence


def test_a_command_in_two_rounds_is_named() -> None:
    history = life() + life(round=2, commands=["c2"])

    [sentence] = judge_rounds(history)

    assert sentence == "command c2 is in 2 rounds: [(1, 1), (1, 2)]"


@pytest.mark.parametrize("commands", [[], ["c1"], ["c1", "c2", "c3"]])
def test_a_rank_that_carries_out_other_commands_than_it_heard_of_is_named(commands: list[str]) -> None:
    history = [{**each, "commands": commands} if each["what"] == "applied" else each for each in life()]

    [sentence] = judge_rounds(history)

    assert sentence == f"worker-0 applied {commands} in (1, 1), not ['c1', 'c2']"
