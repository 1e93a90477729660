"""An optimizer that is given a closure, as Lightning does, trains and prunes and grows what a plain loop does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.session import Session
from tests.pruning_kit import mask, response
from tests.seed_kit import Op, new_host
from tests.session_kit import backward, on_seed, order, own_optimizer, train
from tests.site_kit import attached


def train_by_closure(run: Session, host: nn.Module, num_steps: int) -> None:
    """Forward, zero_grad and backward inside optimizer.step(), in the order of Lightning."""
    for _ in range(num_steps):
        with run.step() as step:

            def closure(number: int = run.step_number) -> torch.Tensor:
                run.optimizer.zero_grad()
                return backward(host, number)

            step.loss(run.optimizer.step(closure))  # type: ignore[arg-type]


def life(driven_by: Any) -> tuple[Session, nn.Module, dict[str, torch.Tensor]]:
    """A seed trains, two channels are pruned; the run, the host and the importance measured."""
    host = new_host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)
    settings = KasminaCheckpointPruningConfig(importance_every=1)
    run = attached(host, "body", optimizer=optimizer, pruning=settings)
    driven_by(run, host, 1)
    order(
        run,
        on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="lora"),
        own_optimizer("s0", 0.02),
        on_seed(Op.SEED_OP_START_TRAINING),
    )
    driven_by(run, host, 12)
    assert not run.pruning.apply(response(mask("body.weight", [0, 4], 6)), run.step_number).reason
    driven_by(run, host, 12)
    return run, host, run.pruning.importance.state()


@pytest.fixture(autouse=True)
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESPER_RUN", raising=False)


def test_a_closure_changes_nothing() -> None:
    plain_run, plain, measured = life(train)
    run, host, by_closure = life(train_by_closure)

    assert all(torch.equal(a, b) for a, b in zip(host.parameters(), plain.parameters(), strict=True))
    assert all(torch.equal(by_closure[name], value) for name, value in measured.items())
    seeds = [[p for _, p in each.executor.seeds["s0"].trainable()] for each in (run, plain_run)]
    assert all(torch.equal(a, b) for a, b in zip(*seeds, strict=True))
    assert any(bool(parameter.any()) for parameter in seeds[0][1:])  # it has learnt: at its start it was zero
    assert host.get_parameter("body.weight").any(1).tolist() == [False, True, True, True, False, True]


def test_a_line_search_is_measured_where_it_begins() -> None:
    host = new_host()
    optimizer = torch.optim.LBFGS(host.parameters(), max_iter=4)  # it calls the closure up to five times a step
    run = attached(host, "body", optimizer=optimizer, pruning=KasminaCheckpointPruningConfig(importance_every=1))

    train_by_closure(run, host, 3)

    assert run.pruning.importance.num_steps() == 3
    run.close()
