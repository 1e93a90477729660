"""Every blueprint grows in a compiled host under autocast: one break, around the seed, and no fault."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from esper.kasmina.executor import Executor
from tests.blueprint_kit import CASES, HOSTS, germinate


# Warnings of torch's own compiler, where it traces an autograd function.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("kind", "blueprint"), CASES)
def test_a_seed_in_a_compiled_host_is_the_only_break(kind: type[nn.Module], blueprint: str) -> None:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    host, x = kind(), torch.randn(HOSTS[kind])
    executor = Executor(host, ["body"], run_id="test-00000000")
    compiled = torch.compile(host, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        compiled(x)

    germinate(executor, blueprint)
    executor.begin_step(2, 0)
    with torch.autocast("cpu", torch.bfloat16):
        y = compiled(x)
    torch.autograd.backward(y.float().square().mean())

    seed = executor.seeds["s0"]
    assert seed.fault == ""
    assert all(bool(torch.isfinite(gradient).all()) for gradient in seed.gradients())
    assert any(bool(gradient.any()) for gradient in seed.gradients())
    assert counters["stats"]["unique_graphs"] <= 3  # without the seed, and on either side of it
    assert counters["graph_break"]
    assert all("beside" in why or "replaced" in why for why in counters["graph_break"])
