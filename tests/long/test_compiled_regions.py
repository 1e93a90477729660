"""Seeds of one structure share one compiled forward, made before it is needed and never again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import register_backend
from torch._dynamo.utils import counters

from esper.errors import SettingError
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.kernels.regional import Regions
from esper.leyline import contracts as pb

WIDTH = 16
BATCHES = (16, 64, 32, 17, 5)  # the first is as large as the width
CLASSES = 2  # of stages: those in which gradients flow, and those in which they don't


def num_graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def built(blueprint_id: str, **parameters: float) -> nn.Module:
    shape = torch.Size((BATCHES[0], WIDTH))
    return BLUEPRINTS[blueprint_id].build(nn.Linear(WIDTH, WIDTH), shape, shape, parameters)


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, WIDTH), torch.randn(size, WIDTH)


def test_a_structure_compiles_once_for_each_class_of_stages_and_any_batch() -> None:
    regions, before = Regions("aot_eager"), num_graphs()
    for parameters in ({"rank": 2.0}, {"rank": 3.0}):
        regions.warm(built("lora", **parameters), *batch(WIDTH))
    assert num_graphs() - before == 2 * CLASSES
    for parameters in ({"rank": 2.0}, {"rank": 3.0}):
        seed = built("lora", **parameters)
        for size in BATCHES:
            torch.autograd.grad(regions.of(seed)(seed, *batch(size)).sum(), list(seed.parameters()))
            with torch.no_grad():
                regions.of(seed)(seed, *batch(size))
    assert num_graphs() - before == 2 * CLASSES
    assert len(regions) == 2


def test_more_structures_than_torch_recompiles_one_function_for_are_all_compiled() -> None:
    regions, before, limit = Regions("eager"), num_graphs(), 3  # torch's own is 8
    with torch._dynamo.config.patch(recompile_limit=limit):
        for rank in range(1, limit + 3):
            regions.warm(built("lora", rank=float(rank)), *batch(WIDTH))
    assert num_graphs() - before == (limit + 2) * CLASSES


@pytest.mark.parametrize("blueprint_id", ["lora", "mlp", "norm"])
def test_compiled_and_eager_agree(blueprint_id: str) -> None:
    seed, regions = built(blueprint_id), Regions("aot_eager")
    for parameter in seed.parameters():
        nn.init.uniform_(parameter, -1.0, 1.0)
    x, h = batch(8)
    expected = seed(x, h)
    gradients = torch.autograd.grad(expected.square().sum(), list(seed.parameters()))
    regions.warm(seed, *batch(WIDTH))
    delta = regions.of(seed)(seed, x, h)
    torch.testing.assert_close(delta, expected)
    torch.testing.assert_close(torch.autograd.grad(delta.square().sum(), list(seed.parameters())), gradients)


class Averages(nn.Module):
    """Keeps a mean of what it saw, and draws."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.zeros(WIDTH))
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        self.mean.lerp_(h.detach().mean(0) + 1.0, 0.1)
        return nn.functional.dropout(h, 0.5) * self.up


class Cumulates(Averages):
    """Sets a buffer of another length for each size of batch."""

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        self.mean = nn.functional.pad(h.detach().flatten().cumsum(0), (1, 0))
        return h * self.up


def averaging(backend: str, kind: type[Averages] = Averages, num: int = 8) -> Executor:
    """Of a host whose site has carried a batch."""
    host, blueprint = nn.Sequential(nn.Linear(WIDTH, WIDTH)), Blueprint("averages", (), lambda *_: kind(), "")
    settings = KasminaConfig(torch_compile_backend=backend)
    executor = Executor(host, ["0"], run_id="r", settings=settings, blueprints={"averages": blueprint})
    host(batch(num)[0])
    return executor


def test_a_buffer_that_is_set_anew_while_it_is_compiled_is_the_one_before() -> None:
    kernels = averaging("eager", Cumulates, 1).kernels  # of which two are compiled for

    kernels.prepare("0", "averages", {})

    made = kernels.load_kernel(kernels.next_id("0", "averages", {})).module
    assert isinstance(made, Cumulates) and made.mean.shape == (WIDTH + 1,)


def test_what_is_compiled_has_drawn_nothing_and_seen_nothing() -> None:
    eager, compiled = (averaging(backend).kernels for backend in ("", "eager"))
    torch.manual_seed(7)
    expected = torch.rand(4)
    torch.manual_seed(7)

    for kernels in (eager, compiled):
        kernels.prepare("0", "averages", {})

    assert torch.equal(torch.rand(4), expected)
    made = [kernels.load_kernel(kernels.next_id("0", "averages", {})).module for kernels in (eager, compiled)]
    means = [each.mean for each in made if isinstance(each, Averages)]
    assert len(means) == 2 and torch.equal(*means)


@register_backend
def refusing(graph: torch.fx.GraphModule, inputs: Any) -> Any:
    """A backend that can compile nothing."""
    raise NotImplementedError("no such hardware")


def test_what_the_backend_cannot_compile_does_not_germinate() -> None:
    host = nn.Sequential(nn.Linear(WIDTH, WIDTH))
    executor = Executor(host, ["0"], run_id="r", settings=KasminaConfig(torch_compile_backend="refusing"))
    host(batch(8)[0])
    operation = pb.SeedOperation.SEED_OP_GERMINATE

    command = pb.SeedCommand(seed_id="s0", operation=operation, site="0", blueprint_id="lora")
    outcome = executor.apply(command, 1, 0)

    assert outcome.status == pb.ReceiptStatus.RECEIPT_FAILED
    assert "refusing can't compile it" in outcome.detail and "no such hardware" in outcome.detail
    assert not executor.seeds


def test_a_backend_that_torch_does_not_know_is_named() -> None:
    with pytest.raises(SettingError, match="torch_compile_backend is 'nosuch'; expected one of"):
        Executor(
            nn.Sequential(nn.Linear(2, 2)), ["0"], run_id="r", settings=KasminaConfig(torch_compile_backend="nosuch")
        )
