"""The norms of the seeds' gradients are found once a step, for the gates and for the seeds' optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from esper.kasmina.isolation.graph import batched_norms
from esper.leyline.lifecycle import TRAINING
from esper.tolaria.optimizers.joint import norms
from tests.seed_kit import Bench, Op, new_host, optimizer_of
from tests.session_kit import on_seed, order, train, unsteered


class Norms(TorchFunctionMode):
    """Counts lists of tensors that are measured."""

    num = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.num += func is torch._foreach_norm
        return func(*args, **(kwargs or {}))


def test_a_step_of_training_seeds_measures_their_gradients_once() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head")
    train(run, host, 1)
    operations = (Op.SEED_OP_GERMINATE, Op.SEED_OP_START_TRAINING)
    for site in ("body", "head"):
        for operation in operations:
            order(run, on_seed(operation, site, site=site, blueprint_id="mlp"))
            train(run, host, 1)
    before = [p.detach().clone() for seed in run.executor.seeds.values() for _, p in seed.trainable()]

    with Norms() as counted:
        train(run, host, 1)

    after = [p for seed in run.executor.seeds.values() for _, p in seed.trainable()]
    assert {seed.stage for seed in run.executor.seeds.values()} == {TRAINING}
    assert counted.num == 1
    assert not all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_what_is_found_of_a_seed_are_its_own_gradients_and_their_norm() -> None:
    bench = Bench()
    bench.raise_seed("TRAINING", "body")
    seed = bench.executor.seeds["s0"]
    for number, (_, parameter) in enumerate(seed.trainable()):
        parameter.grad = torch.full_like(parameter, number + 0.5)

    found = bench.executor.observe([torch.ones(3)], bench.step)["s0"]

    expected = [p.grad for _, p in seed.trainable()]
    assert all(own is each for own, each in zip(found.gradients, expected, strict=True))
    squares = [float((each.numpy().astype(np.float64) ** 2).sum()) for each in expected if each is not None]
    assert found.norm == pytest.approx(sum(squares) ** 0.5, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_clip_alike_whether_or_not_a_norm_was_found(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    groups = [[torch.randn(3, dtype=dtype) for _ in range(6)] for _ in range(1_000)]

    assert batched_norms(groups).tolist() == norms(groups)
