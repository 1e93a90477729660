"""A seed that blends is clipped by its alpha; one that only trains is not."""

from __future__ import annotations

import pytest
import torch
from torch.optim import lr_scheduler

from esper.errors import SettingError
from esper.session.joining import seed_clips
from tests.seed_kit import Bench, Op, new_host
from tests.session_kit import unsteered


def test_the_clip_follows_alpha_while_a_seed_blends() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING")
    training = seed_clips(bench.executor)

    assert bench.do(Op.SEED_OP_START_GRAFTING, alpha=0.8, steps=4).status
    found = []
    for _ in range(6):
        bench.train(1)
        [clip] = seed_clips(bench.executor).values()
        alpha = bench.executor.states()[0].alpha
        found.append((alpha, clip))

    assert training == {}
    assert found[-1][0] == pytest.approx(0.8)
    assert [clip for _, clip in found] == pytest.approx([0.1 / (1 + 100 * (alpha - 0.5) ** 2) for alpha, _ in found])


def test_a_scheduler_that_is_none_is_refused_with_what_was_expected() -> None:
    host = new_host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
    known = lr_scheduler.ConstantLR(optimizer)

    with pytest.raises(SettingError, match=r"scheduler.*SGD.*LRScheduler"):
        unsteered(host, optimizer, "body", scheduler=[known, optimizer])
