"""In a real loop a seed steps as torch's AdamW would on its own gradients, and only when the host does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from esper.session import Session
from tests.optimizer_kit import Kind, command, same
from tests.seed_kit import Host, Op, batch, loss_of, new_host
from tests.session_kit import on_seed, order, own_optimizer, train, unsteered

SKIPPED, MICRO_BATCHES, LR = 4, 2, 0.05


def halves(host: Host) -> list[dict[str, Any]]:
    return [{"params": list(host.body.parameters()), "lr": 0.2}, {"params": list(host.head.parameters())}]


HOSTS: dict[str, Any] = {
    "foreach": lambda host: torch.optim.AdamW(host.parameters(), lr=0.01, foreach=True),
    "fused": lambda host: torch.optim.AdamW(host.parameters(), lr=0.01, fused=True),
    "groups": lambda host: torch.optim.SGD(halves(host), lr=0.1, momentum=0.9),
}


def grown(host: Host, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> Session:
    run = unsteered(host, optimizer, "body", "head", scaler=scaler)
    train(run, host, 1)
    sow = on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp")
    order(run, sow, own_optimizer("s0", LR), on_seed(Op.SEED_OP_START_TRAINING))
    run.begin_step()
    return run


def seed_parameters(run: Session) -> list[nn.Parameter]:
    return [parameter for _, parameter in run.executor.seeds["s0"].trainable()]


@pytest.mark.parametrize(("kind", "scaled"), [("foreach", False), ("fused", True), ("groups", True)])
def test_a_seed_equals_adamw_on_its_own_gradients_through_micro_batches_and_skipped_steps(
    kind: str, scaled: bool
) -> None:
    host = new_host()
    optimizer = HOSTS[kind](host)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=100, enabled=scaled)
    run = grown(host, optimizer, scaler)
    parameters = seed_parameters(run)
    twins = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    reference = torch.optim.AdamW(twins, lr=LR)

    for number in range(1, 8):
        spoilt = scaled and number == SKIPPED
        with run.step():
            for part in range(MICRO_BATCHES):
                inputs, targets = batch(10 * number + part)
                loss = loss_of(host(inputs), targets).mean() * (float("inf") if spoilt else 1.0)
                torch.autograd.backward(scaler.scale(loss))
            for twin, parameter in zip(twins, parameters, strict=True):
                assert parameter.grad is not None
                twin.grad = parameter.grad / scaler.get_scale()  # a power of two: exact
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        if not spoilt:
            reference.step()

    assert same(parameters, twins)
    assert scaler.get_scale() == (128.0 if scaled else 1.0)
    assert {int(state["step"]) for state in run.optimizers._seeds["s0"].torch.state.values()} == {6 if scaled else 7}


def test_the_steps_a_lease_left_out_are_told_with_the_seeds_state() -> None:
    host = new_host()
    run = grown(host, torch.optim.SGD(host.parameters(), lr=0.1), torch.amp.GradScaler("cpu", enabled=False))
    order(run, command(Kind.OPTIMIZER_COMMAND_STEP, "s0", expected_step=4, num_steps=1))

    train(run, host, 4)  # steps 2 to 5

    [state] = run.status.heartbeat(6, 0).seeds
    assert state.metrics["steps_dropped"] == 3
    assert "steps_non_finite" not in state.metrics
