"""A seed that comes back from a checkpoint is compiled before the first step, as one that germinates is."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo import register_backend
from torch._dynamo.utils import counters

from esper.errors import CheckpointError
from tests.seed_kit import APPLIED, SETTINGS, Bench, Op, batch, equal, loss_of

COMPILED = replace(SETTINGS, torch_compile_backend="aot_eager")
SIZES = (64, 17, 64)  # the first call of a seed gets a close look, in eager mode
CLASSES = 2  # of stages: those in which gradients flow, and those in which they don't


def num_graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def with_seed() -> Bench:
    bench = Bench(settings=COMPILED)
    bench.train(1)
    assert bench.germinate(blueprint="lora").status == APPLIED
    assert bench.do(Op.SEED_OP_START_TRAINING).status == APPLIED
    bench.train(2)
    return bench


def dumped(bench: Bench) -> dict[str, Any]:
    return copy.deepcopy(bench.executor.durable().dump())


def deltas(bench: Bench) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in bench.executor.seeds["s0"].trainable()}


def test_the_steps_after_a_resume_compile_nothing() -> None:
    kept, again, before = dumped(with_seed()), Bench(settings=COMPILED), num_graphs()

    again.executor.durable().make(kept).put_back(1)
    compiled = num_graphs() - before
    for step, size in enumerate(SIZES, start=1):
        again.executor.begin_step(step, 0)
        inputs, targets = batch(step, size)
        torch.autograd.backward(loss_of(again.host(inputs), targets).mean())
        with torch.no_grad():
            again.host(inputs)

    assert compiled == CLASSES
    assert num_graphs() - before == CLASSES
    assert any(bool(gradient.any()) for gradient in again.executor.seeds["s0"].gradients())


def test_compiling_changes_neither_the_seed_nor_what_is_drawn_next() -> None:
    first, again = with_seed(), Bench(settings=COMPILED)
    kept = dumped(first)
    torch.manual_seed(7)
    expected = torch.rand(4)
    torch.manual_seed(7)

    again.executor.durable().make(kept).put_back(1)

    assert torch.equal(torch.rand(4), expected)
    assert equal(deltas(again), deltas(first))
    assert all(parameter.grad is None for _, parameter in again.executor.seeds["s0"].trainable())


@register_backend
def resuming_on_another_machine(graph: torch.fx.GraphModule, inputs: Any) -> Any:
    """A backend that can compile nothing."""
    raise NotImplementedError("no such hardware")


def test_a_seed_that_cannot_be_compiled_here_is_refused_before_anything_changes() -> None:
    kept = dumped(with_seed())
    again = Bench(settings=replace(SETTINGS, torch_compile_backend="resuming_on_another_machine"))

    with pytest.raises(CheckpointError, match=r"its seed 's0' .*can't compile it .*no such hardware"):
        again.executor.durable().make(kept)

    assert not again.executor.seeds
