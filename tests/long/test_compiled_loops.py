"""Scripts that have more than the forward compiled: no step compiles anew for a seed, and none raises over one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from esper.leyline.lifecycle import TRAINING
from esper.session import Session
from tests.net_kit import ROWS, Net, start, train
from tests.session_kit import unsteered
from tests.site_kit import OPEN, squares

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # torch's, as it traces


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def attached(host: nn.Module, optimizer: torch.optim.Optimizer) -> Session:
    return unsteered(host, optimizer, "site", settings=OPEN)


def test_an_optimizer_whose_step_is_compiled_is_compiled_once_whatever_its_seeds_do() -> None:
    host = Net()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.05)
    run, step = attached(host, optimizer), torch.compile(optimizer.step, backend="eager")

    def loss(host: nn.Module, x: Tensor) -> Tensor:
        found = squares(host(x)).mean()
        torch.autograd.backward(found)
        step()
        optimizer.zero_grad()
        return found

    optimizer_alone = torch.optim.SGD((alone := Net()).parameters(), lr=0.05)
    start(run, host, ROWS, loss)
    train(run, host, ROWS, 6, loss)

    for _ in range(7):
        torch.autograd.backward(squares(alone(ROWS)).mean())
        optimizer_alone.step()
        optimizer_alone.zero_grad()
    seed = run.executor.seeds["s0"]
    assert (seed.stage, seed.meter.fits.total) == (TRAINING, 6)
    assert counters["stats"]["unique_graphs"] == 1
    assert all(torch.equal(a, b) for a, b in zip(host.parameters(), alone.parameters(), strict=True))


@pytest.mark.parametrize("whole", [True, False])
def test_where_the_graph_may_have_no_break_a_seed_is_refused(whole: bool) -> None:
    host = Net()
    run = attached(host, torch.optim.SGD(host.parameters(), lr=0.05))
    compiled: Any = torch.compile(host, backend="eager", fullgraph=whole)

    start(run, compiled, ROWS)
    train(run, compiled, ROWS, 2)

    assert ("s0" in run.executor.seeds) != whole


def test_what_only_looks_through_the_host_says_nothing_of_its_batches() -> None:
    host = Net()
    run = attached(host, torch.optim.SGD(host.parameters(), lr=0.05))
    on_meta = {name: each.to("meta") for name, each in host.named_parameters()}

    torch.func.functional_call(host, on_meta, (ROWS.to("meta"),))
    torch.func.vmap(host)(ROWS)
    torch.export.export(host, (ROWS,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    start(run, host, ROWS)
    train(run, host, ROWS, 2)

    assert run.executor.seeds["s0"].stage == TRAINING
