"""Ranks that begin anew with other weights than most take theirs, with what optimizers remember of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from esper.errors import TrainingError
from esper.session import Session, weight_divergence
from esper.session.weight_divergence import mend_parted
from esper.tolaria import missing_ranks
from esper.tolaria.state.bank import Bank
from esper.tolaria.state.digest import parameter_digest
from tests.group_kit import forked, said_by_all
from tests.seed_kit import Op, new_host, optimizer_of
from tests.session_kit import on_seed, order, own_optimizer, train, unsteered

Held = tuple[bytes, bytes]
"""Digests of a rank's weights and of its optimizers' moments."""


def held(run: Session) -> Held:
    moments = run.optimizers.snapshot(Bank()).tensors()
    return parameter_digest(run.status.weights()), parameter_digest((str(n), each) for n, each in enumerate(moments))


def other(run: Session) -> None:
    """All that it learns is another number from now on."""
    with torch.no_grad():
        for _, weight in run.status.weights():
            weight += 1.0
    kept = run.optimizers.snapshot(Bank())
    for moment in kept.tensors():
        moment += 1.0
    run.optimizers.restore(kept, run.executor.seeds)


def rank(number: int, num: int, has_parted: bool, folder: Path) -> list[Held]:
    """What it held before, after, and once it has trained on."""
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=number, world_size=num)
    host = new_host()
    run = unsteered(host, optimizer_of("adamw", list(host.parameters())), "body")
    train(run, host, 1)
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"), own_optimizer("s0", 0.01))
    order(run, on_seed(Op.SEED_OP_START_TRAINING))
    train(run, host, 2)
    assert run.optimizers.has("s0")
    if has_parted:
        other(run)
    told = [held(run)]
    group = dist.group.WORLD
    assert group is not None
    mend_parted(run.status, group)
    told.append(held(run))
    train(run, host, 2)
    return [*told, held(run)]


def ranks(are_parted: Sequence[bool], folder: Path) -> list[list[Held]]:
    num = len(are_parted)
    return said_by_all([partial(rank, number, num, parted, folder) for number, parted in enumerate(are_parted)], folder)


def dies_in_hand_over(number: int, folder: Path) -> str:
    """Rank 1 holds other weights, and is gone as soon as it would take those of the others."""
    missing_ranks.PATIENCE = timedelta(seconds=15)
    if number == 1:
        weight_divergence._handed = lambda *_: os._exit(0)
    try:
        rank(number, 3, number == 1, folder)
    except TrainingError as error:
        return str(error)
    return "it went on"


@pytest.mark.parametrize("victim", [0, 2])
def test_one_of_three_takes_what_the_others_hold_and_trains_on_with_them(victim: int, tmp_path: Path) -> None:
    told = ranks([number == victim for number in range(3)], tmp_path)

    before, after, later = zip(*told, strict=True)
    others = {each for number, each in enumerate(before) if number != victim}
    assert len(others) == 1 and before[victim] not in others
    assert {*after} == others
    assert len({*later}) == 1 and {*later} != others


def test_where_no_majority_holds_the_same_nothing_changes(tmp_path: Path) -> None:
    for before, after, _ in ranks([False, True], tmp_path):
        assert before == after


def test_where_all_hold_the_same_no_moments_are_copied(process_group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of them takes up to twice the room of the parameters, where many a run has none left."""
    host, copied = new_host(), list[Bank]()
    run = unsteered(host, optimizer_of("adamw", list(host.parameters())), "body")
    group = dist.group.WORLD
    assert group is not None
    monkeypatch.setattr(run.optimizers, "snapshot", copied.append)

    mend_parted(run.status, group)

    assert not copied


def test_one_that_dies_in_the_hand_over_is_named_by_the_others(tmp_path: Path) -> None:
    with forked([partial(dies_in_hand_over, number, tmp_path) for number in range(3)], tmp_path) as ranks:
        said = {number: ranks[number].said() for number in (0, 2)}

    for number, told in said.items():
        assert told.startswith(f"rank {number} could not hold its parameters against those of rank 1, as every rank ")
