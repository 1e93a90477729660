"""A step in which the script's optimizer raises leaves the script its own optimizer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import torch

from esper.leyline import contracts as pb
from esper.session import Session
from tests.optimizer_kit import adjustment
from tests.seed_kit import Host, new_host
from tests.session_kit import backward, order, train, unsteered

Optimizer = torch.optim.Optimizer


class Fails(Optimizer):
    """It descends, and raises in the steps in which it is to."""

    fails = False

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        if self.fails:
            raise ValueError("it fails")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad + group["weight_decay"] * parameter, alpha=group["lr"])


def fitful(host: Host) -> Fails:
    return Fails(host.parameters(), {"lr": 0.1, "weight_decay": 0.01})


def settings(optimizer: Optimizer) -> dict[str, object]:
    return {name: value for name, value in optimizer.param_groups[0].items() if name != "params"}


def fail(run: Session, host: Host, *, within: bool) -> None:
    """A step whose optimizer raises; `within`: the script goes on from that before its step is over."""
    assert isinstance(run.optimizer, Fails)
    run.optimizer.fails = True
    with suppress(ValueError), run.step() as step:
        step.loss(backward(host, 1))
        with suppress(ValueError if within else KeyError):
            run.optimizer.step()
        run.optimizer.zero_grad()
    run.optimizer.fails = False


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("values", [{"lr": 7.0}, {"weight_decay": 0.5}])
def test_between_steps_the_groups_hold_the_scripts_values_also_where_one_raised(
    within: bool, values: dict[str, float]
) -> None:
    host = new_host()
    run = unsteered(host, fitful(host), "body")
    before = settings(run.optimizer)
    command = adjustment("host", (), **values)
    order(run, pb.AdaptationCommand(version=1, command_id="adjust", optimizer_adjustment=command))

    train(run, host, 2)
    fail(run, host, within=within)

    assert settings(run.optimizer) == before
    assert run.optimizers.hyperparameters().items() >= values.items()


@pytest.mark.parametrize("within", [False, True])
def test_between_steps_the_groups_hold_all_parameters_also_where_one_without_a_lease_raised(within: bool) -> None:
    host = new_host()
    run = unsteered(host, fitful(host), "body", own_host=True)
    grant = pb.OptimizerCommandType.OPTIMIZER_COMMAND_STEP
    lease = pb.OptimizerCommand(
        version=1, command_id="lease", command_type=grant, optimizer_id="host", num_steps=1, expected_step=9
    )
    order(run, lease)

    fail(run, host, within=within)

    assert run.optimizer.param_groups[0]["params"] == list(host.parameters())
