"""Sites that one rank's batch went through and another's left out, told from sites that were gone past."""

from __future__ import annotations

import pytest
import torch

from esper.kasmina.executor import Executor
from esper.kasmina.gates.evidence import Sources
from tests.seed_kit import Bypassing, Host, batch, loss_of, new_host


class LeavesOut(Host):
    """Its head is for some batches only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.act(self.body(x))[:, :3]
        return y


def of_two(host: Host) -> Executor:
    """One rank's executor; the other one says the same."""
    return Executor(host, ("body", "head"), run_id="test-00000000", sources=Sources(reduce=lambda value: value))


def looked(executor: Executor, host: Host, step: int) -> list[str]:
    """What is found past its slot in a step, after which the other rank's share is in the gradients too."""
    executor.begin_step(step, 0)
    inputs, targets = batch(step)
    torch.autograd.backward(loss_of(host(inputs), targets).mean())
    for parameter in host.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.grad is None else parameter.grad + 1.0
    found = executor.bypassed()
    host.zero_grad()
    return found


def test_a_site_in_which_another_rank_alone_learned_is_not_gone_past() -> None:
    host = new_host(LeavesOut)
    executor = of_two(host)

    assert [looked(executor, host, step) for step in (1, 2, 3)] == [[], [], []]


@pytest.mark.parametrize("rests", [False, True])
def test_a_site_that_this_rank_goes_past_is_named_in_the_next_step(rests: bool) -> None:
    host = new_host(Bypassing)
    executor = of_two(host)

    found = [looked(executor, host, 1)]
    if rests:  # between two steps the model is run for something else
        torch.autograd.backward(host(batch(9)[0]).sum())
        host.zero_grad()
    found.append(looked(executor, host, 2))

    assert found == [[], ["head"]]


def test_no_hook_is_left_on_the_parameters_of_a_suspect() -> None:
    host = new_host(LeavesOut)
    executor = of_two(host)
    looked(executor, host, 1)

    executor.detach()

    assert not any(parameter._post_accumulate_grad_hooks for parameter in host.parameters())
