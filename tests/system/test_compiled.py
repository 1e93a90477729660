"""Slots under torch.compile."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.seed_kit import SETTINGS, Op, equal, optimizer_of
from tests.session_kit import on_seed, order, train, train_bare, unsteered


class Block(nn.Module):
    """One of several whose code is equal, so that compiled code could take one for another."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) + x


def blocks() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(Block(), Block(), Block(), nn.Linear(8, 3))


# Warnings of torch's own compiler, where it traces an autograd function or goes on after a break.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("compiled_first", [False, True])
def test_a_seed_germinated_after_compiling_takes_effect(compiled_first: bool) -> None:
    torch.compiler.reset()
    torch._dynamo.config.skip_nnmodule_hook_guards = True  # torch's own default, whatever ran before
    host, bare = blocks(), blocks()
    compiled = torch.compile(host, backend="eager")
    assert callable(compiled)
    if compiled_first:
        compiled(torch.ones(64, 8)).sum().backward()
        host.zero_grad()
    optimizers = [optimizer_of("sgd", list(each.parameters())) for each in (host, bare)]
    train_bare(bare, optimizers[1], 4)

    run = unsteered(compiled, optimizers[0], "0", "1", settings=SETTINGS)  # type: ignore[arg-type]
    train(run, compiled, 2)  # type: ignore[arg-type]
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="1", blueprint_id="mlp"), on_seed(Op.SEED_OP_START_TRAINING))
    train(run, compiled, 2)  # type: ignore[arg-type]

    assert equal(host.state_dict(), bare.state_dict())
    moments = run.optimizers._seeds["s0"].torch.state
    assert {int(state["step"]) for state in moments.values()} == {2}
    assert run.executor.seeds["s0"].meter.fits.total == 2
