"""Ranks that begin anew with other weights than most take theirs, with what optimizers remember of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
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
from tests.seed_kit import Op, new_host, optimizer_of
from tests.session_kit import on_seed, order, own_optimizer, train, unsteered

Held = tuple[bytes, bytes]
"""Digests of a rank's weights and of its optimizers' moments."""


def held(run: Session) -> Held:
    moments = run.optimizers.snapshot(Bank()).tensors()
    return parameter_digest(run.portrait.weights()), parameter_digest((str(n), each) for n, each in enumerate(moments))


def other(run: Session) -> None:
    """All that it learns is another number from now on."""
    with torch.no_grad():
        for _, weight in run.portrait.weights():
            weight += 1.0
    kept = run.optimizers.snapshot(Bank())
    for moment in kept.tensors():
        moment += 1.0
    run.optimizers.restore(kept, run.executor.seeds)


def rank(number: int, num: int, has_parted: bool, folder: Path, line: Connection) -> None:
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
    mend_parted(run.portrait, group)
    told.append(held(run))
    train(run, host, 2)
    line.send([*told, held(run)])
    line.recv()  # the others still read what this one holds
    os._exit(0)


def ranks(are_parted: Sequence[bool], folder: Path) -> list[list[Held]]:
    context, lines, told = get_context("fork"), [], []
    for number, has_parted in enumerate(are_parted):
        line, its = context.Pipe()
        context.Process(target=rank, args=(number, len(are_parted), has_parted, folder, its), daemon=True).start()
        its.close()  # or nobody would notice that it died
        lines.append(line)
    for line in lines:
        assert line.poll(120.0)
        told.append(line.recv())
    for line in lines:
        line.send("go")
    return told


def dies_in_hand_over(number: int, folder: Path, line: Connection) -> None:
    """Rank 1 holds other weights, and is gone as soon as it would take those of the others."""
    missing_ranks.PATIENCE = timedelta(seconds=15)
    if number == 1:
        weight_divergence._handed = lambda *_: os._exit(0)
    try:
        rank(number, 3, number == 1, folder, line)
    except TrainingError as error:
        line.send(str(error))
    os._exit(0)


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

    mend_parted(run.portrait, group)

    assert not copied


def test_one_that_dies_in_the_hand_over_is_named_by_the_others(tmp_path: Path) -> None:
    context, lines = get_context("fork"), []
    for number in range(3):
        line, its = context.Pipe()
        context.Process(target=dies_in_hand_over, args=(number, tmp_path, its), daemon=True).start()
        its.close()
        lines.append(line)

    for number in (0, 2):
        assert lines[number].poll(120.0)
        told = lines[number].recv()
        assert told.startswith(f"rank {number} could not hold its parameters against those of rank 1, as every rank ")
